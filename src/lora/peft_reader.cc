#include "lora/peft_reader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/names.h"
#include "lora/adapted_modules.h"
#include "lora/adapter_builder.h"
#include "lora/adapter_values.h"
#include "lora/module_ids.h"
#include "lora/module_spellings.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"
#include "lora/peft_replacements.h"

namespace chorus {
namespace {

class PeftReader {
 public:
  PeftReader(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
             const AdapterTarget& target)
      : config_(config),
        weights_(weights),
        config_source_(config_source),
        target_(target),
        names_(target.config, target.table),
        modules_(config, weights, config_source, target, names_),
        replacements_(config, weights, config_source, target) {}

  void read(AdapterBuilder& builder) {
    for (const std::string& name : weights_.names()) collect(name, builder);
    modules_.adaptTiedHead();
    if (modules_.all().empty() && replacements_.empty()) {
      if (!of_other_parts_.empty()) {
        modules_.refuse(of_other_parts_.front(), "is of a part of the model that is not served, and so are all others");
      }
      fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    }
    std::set<std::string> adapted;
    for (const auto& [module, tensors] : modules_.all()) adapted.insert(module);
    replacements_.read(adapted, builder);
    for (const auto& [module, tensors] : modules_.all()) addModule(tensors, builder);
    Adapter& adapter = builder.adapter();
    adapter.num_of_other_parts = std::ssize(of_other_parts_);
    adapter.left_out.insert(adapter.left_out.end(), of_other_parts_.begin(), of_other_parts_.end());
  }

  // Like read(), but records what is refused instead of throwing, and goes on.
  PeftInspection inspect(AdapterBuilder& builder) {
    PeftInspection inspection;
    std::map<std::string_view, size_t> places;
    for (const std::string& name : weights_.names()) {
      places.emplace(name, inspection.tensors.size());
      inspection.tensors.push_back({.name = name});
    }
    // A file may have very many tensors, and a reason may be long.
    constexpr size_t kMostReasons = 10'000;
    size_t reasons = 0;
    const auto refuse = [&](PeftInspection::Tensor& tensor, std::string_view reason) {
      tensor.verdict = PeftInspection::Tensor::Verdict::kRefused;
      if (reasons++ < kMostReasons) tensor.reason = reason;
    };
    // Runs a check of these tensors. If it throws, those that the error names are refused for its reason. If it names
    // none, all of them are refused, and the first has the reason.
    const auto attempt = [&](const std::vector<std::string>& checked, const auto& check) {
      try {
        check();
        return;
      } catch (const Error& e) {
        const std::string text = e.what();
        if (inspection.error.empty()) inspection.error = text;
        const auto named = [&](const std::string& name) { return text.find("'" + name + "'") != std::string::npos; };
        const bool any = std::ranges::any_of(checked, named);
        for (const std::string& name : checked) {
          const auto place = places.find(name);
          if (place == places.end()) continue;
          const bool has_reason = any ? named(name) : &name == &checked.front();
          refuse(inspection.tensors[place->second], has_reason ? text : "it belongs to a module that is refused");
        }
      }
    };
    std::vector<std::string> replacing;
    for (const std::string& name : weights_.names()) {
      attempt({name}, [&] {
        collect(name, builder);
        const auto key = parsePeftKey(name);
        const bool replaces =
            key && (key->part == PeftPart::kBase || key->part == PeftPart::kSaved || key->part == PeftPart::kTokens);
        if (replaces) replacing.push_back(name);
      });
    }
    attempt({}, [&] {
      modules_.adaptTiedHead();
      const bool nothing = modules_.all().empty() && replacements_.empty() && inspection.error.empty();
      if (nothing) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors that are served", weights_.source());
    });
    std::set<std::string> adapted;
    for (const auto& [module, tensors] : modules_.all()) adapted.insert(module);
    attempt(replacing, [&] { replacements_.read(adapted, builder); });
    for (const std::string& name : replacing) {
      const auto key = parsePeftKey(name);
      inspection.tensors[places.at(name)].target = key->tensor.empty() ? key->module : key->module + "." + key->tensor;
    }
    for (const auto& [module, tensors] : modules_.all()) {
      std::vector<std::string> names;
      for (const std::string* name : {&tensors.a, &tensors.b, &tensors.bias, &tensors.magnitude}) {
        if (!name->empty()) names.push_back(*name);
      }
      attempt(names, [&, &of = tensors] {
        addModule(of, builder);
        for (const std::string& name : names) inspection.tensors[places.at(name)].target = targetsOf(of);
      });
    }
    for (const auto* left_out : {&builder.adapter().left_out, &of_other_parts_}) {
      for (const std::string& name : *left_out) {
        const auto place = places.find(name);
        if (place == places.end()) continue;
        PeftInspection::Tensor& tensor = inspection.tensors[place->second];
        if (tensor.verdict == PeftInspection::Tensor::Verdict::kRefused) continue;
        tensor.verdict = PeftInspection::Tensor::Verdict::kLeftOut;
        tensor.target.clear();
      }
    }
    for (PeftInspection::Tensor& tensor : inspection.tensors) {
      if (tensor.verdict == PeftInspection::Tensor::Verdict::kRefused) tensor.target.clear();
    }
    return inspection;
  }

 private:
  // The checkpoint's tensors that a module's tensors change.
  std::string targetsOf(const ModuleTensors& tensors) const {
    if (tensors.layer < 0) return tensors.name;
    const std::string name = tensors.is_stack ? expertName(tensors.name, 0) : tensors.name;
    std::string targets;
    for (const ModulePlace& place : findModules(target_.table, name, tensors.layer)) {
      const std::string target = layerName(place.row->name, tensors.layer);
      if (targets.find(target) == std::string::npos) targets += (targets.empty() ? "" : ", ") + target;
    }
    return targets;
  }

  void collect(const std::string& name, AdapterBuilder& builder) {
    // The other parts may have parameters of their own, whose names are not those of an adapter's tensors.
    if (matchesAny(target_.left_out, nameInModel(name))) {
      of_other_parts_.push_back(name);
      return;
    }
    const auto key = parsePeftKey(name);
    if (!key) modules_.refuseUnknown(name);
    switch (key->part) {
      case PeftPart::kBlockCopy:
        // PEFT also saves the embedding of a saved block under the wrapper's name.
        if (!names_.isEmbedding(key->module) || !config_.modules.saves(names_.embedding)) modules_.refuseUnknown(name);
        [[fallthrough]];
      case PeftPart::kLeftOut:
        builder.adapter().left_out.push_back(name);
        return;
      case PeftPart::kBase:
      case PeftPart::kSaved:
      case PeftPart::kTokens:
        if (!replacements_.collect(name, *key)) modules_.refuseUnknown(name);
        return;
      default:
        modules_.collect(name, *key, builder);
    }
  }

  void checkParts(const ModuleTensors& tensors) const {
    if (tensors.a.empty() || tensors.b.empty()) {
      const std::string& present = !tensors.b.empty()      ? tensors.b
                                   : !tensors.a.empty()    ? tensors.a
                                   : !tensors.bias.empty() ? tensors.bias
                                                           : tensors.magnitude;
      modules_.refuse(present,
                      fmt::format("belongs to a module whose {} is missing", tensors.a.empty() ? "lora_A" : "lora_B"));
    }
    const auto checkPresence = [&](bool asked, const std::string& tensor, const char* what, const char* field) {
      if (asked && tensor.empty()) {
        modules_.refuse(tensors.a, fmt::format("has no {}, although {} sets {}", what, config_source_, field));
      }
      if (!asked && !tensor.empty()) {
        modules_.refuse(tensor, fmt::format("is a {}, although {} does not set {}", what, config_source_, field));
      }
    };
    checkPresence(config_.use_dora, tensors.magnitude, "lora_magnitude_vector (DoRA magnitude)", "use_dora");
    checkPresence(config_.lora_bias, tensors.bias, "bias of lora_B", "lora_bias");
  }

  void addModule(const ModuleTensors& tensors, AdapterBuilder& builder) {
    checkParts(tensors);
    const std::string& pattern_name = tensors.parameter.empty() ? tensors.key.module : tensors.parameter;
    const std::string& own_name = tensors.parameter.empty() ? tensors.own_name : tensors.parameter;
    // A tied head uses the embedding's matrices and therefore their rank, but the scale of its own name.
    const int64_t rank = modules_.isTiedHead(tensors.key.module) ? config_.rankOf(names_.embedding)
                                                                 : config_.rankOf(pattern_name, own_name);
    if (target_.max_rank > 0 && rank > target_.max_rank) {
      modules_.refuse(tensors.a, fmt::format("has rank {}, above the maximum of {}; raise --max_lora_rank", rank,
                                             target_.max_rank));
    }
    const float scale = config_.scaleOf(pattern_name, own_name);
    if (!std::isfinite(scale)) {
      fail(ErrorCode::kInvalidArgument, "{}: lora_alpha of '{}' is out of range", config_source_, tensors.key.module);
    }
    AdapterModule module = {.module_name = tensors.name, .layer = tensors.layer, .rank = rank, .scale = scale};
    if (tensors.layer >= 0) {
      addLayerModule(tensors, std::move(module), builder);
    } else if (names_.isHead(tensors.name)) {
      module.module_id = kOutputHead;
      module.in = target_.config.embedding_size;
      module.out = replacements_.headVocabulary();
      readVectors(tensors, module, {tensors.key.form}, builder);
      tensors.is_tied_head ? addTiedHead(tensors, std::move(module), builder)
                           : addMatrices(tensors, std::move(module), builder);
    } else {
      addEmbedding(tensors, std::move(module), builder);
    }
  }

  void addEmbedding(const ModuleTensors& tensors, AdapterModule module, AdapterBuilder& builder) {
    const int64_t rank = module.rank;
    module.module_id = kTokenEmbedding;
    module.in = replacements_.inputVocabulary();
    module.out = target_.config.embedding_size;
    if (tensors.parameter.empty()) {
      readVectors(tensors, module, {tensors.key.form}, builder);
      addMatrices(tensors, std::move(module), builder);
      return;
    }
    // The parameter is a matrix [tokens, hidden], so B is [tokens, rank] and A is [rank, hidden]. AdapterModule holds
    // their transposes.
    const TensorView a = transposed(checked(tensors.b, {module.in, rank}), builder);
    const TensorView b = transposed(checked(tensors.a, {rank, module.out}), builder);
    builder.add(std::move(module), a, b);
  }

  void addMatrices(const ModuleTensors& tensors, AdapterModule module, AdapterBuilder& builder) const {
    const auto [a, b] =
        lowRankOf(weights_, tensors.a, tensors.b, {module.rank, module.in, module.out}, {tensors.key.form}, builder);
    builder.add(std::move(module), a, b);
  }

  // mlx-lm's matrices of the embedding, [tokens, rank] and [rank, hidden], are B and A of the output head.
  void addTiedHead(const ModuleTensors& tensors, AdapterModule module, AdapterBuilder& builder) const {
    const TensorView& a = checked(tensors.b, {module.rank, module.in});
    const TensorView& b = checked(tensors.a, {module.out, module.rank});
    builder.add(std::move(module), a, b);
  }

  // torchtune has another order of the rows of q and k.
  ValuesForm formOf(const ModuleTensors& tensors, const ModulePlace& place) const {
    ValuesForm form{tensors.key.form};
    const int32_t id = place.target->module_id;
    if (form.form != AdapterForm::kTorchtune || (id != kAttnQ && id != kAttnK)) return form;
    if (place.target->torchtune_rows == TorchtuneRows::kUnknown) {
      modules_.refuse(tensors.b,
                      fmt::format("has torchtune's name, but the order in which torchtune keeps q and k of {} is not "
                                  "known; save the adapter in PEFT's format",
                                  target_.config.architecture));
    }
    if (place.target->torchtune_rows == TorchtuneRows::kPairs) form.head_rows = target_.config.head_size;
    return form;
  }

  void addLayerModule(const ModuleTensors& tensors, AdapterModule whole, AdapterBuilder& builder) {
    if (tensors.is_stack) return addStack(tensors, whole, builder);
    const std::vector<ModulePlace> places = findModules(target_.table, tensors.name, tensors.layer);
    const ModulePlace& first = places.front();
    whole.in = first.in();
    whole.out = first.target->in_module.rowsOfSource(first.out());
    if (first.isOfAllExperts()) return addExperts(tensors, places, whole, builder);
    const ValuesForm form = formOf(tensors, first);
    const auto [a, b] = lowRankOf(weights_, tensors.a, tensors.b, {whole.rank, whole.in, whole.out}, form, builder);
    readVectors(tensors, whole, form, builder);
    whole.expert = first.expert;
    addPlaces(tensors, places, whole, a, b, builder);
  }

  void addStack(const ModuleTensors& tensors, AdapterModule whole, AdapterBuilder& builder) {
    if (!tensors.magnitude.empty())
      modules_.refuse(tensors.magnitude, "is a DoRA magnitude of experts, which mlx-lm does not have");
    const auto placesOf = [&](int64_t expert) {
      return findModules(target_.table, expertName(tensors.name, expert), tensors.layer);
    };
    const std::vector<ModulePlace> first = placesOf(0);
    const int64_t experts = first.front().row->experts;
    whole.in = first.front().in();
    whole.out = first.front().target->in_module.rowsOfSource(first.front().out());
    const auto matrices =
        lowRankOfExperts(weights_, tensors.a, tensors.b, {whole.rank, whole.in, whole.out}, experts, target_.throttle);
    for (whole.expert = 0; whole.expert < experts; ++whole.expert) {
      const auto& [a, b] = matrices[static_cast<size_t>(whole.expert)];
      addPlaces(tensors, placesOf(whole.expert), whole, a, b, builder);
    }
  }

  // PEFT stacks the matrices of all experts: row e * rank + r of A is row r of expert e's, and column r * experts + e
  // of B is column r of expert e's.
  void addExperts(const ModuleTensors& tensors, const std::vector<ModulePlace>& places, AdapterModule whole,
                  AdapterBuilder& builder) {
    const int64_t experts = places.front().row->experts;
    const auto all = static_cast<int64_t>(
        checkedMul(static_cast<uint64_t>(whole.rank), static_cast<uint64_t>(experts), "the rank of all experts"));
    checkOrder(tensors, all, whole);
    const TensorView& a = checked(tensors.a, {all, whole.in});
    const TensorView& b = checked(tensors.b, {whole.out, all});
    const size_t a_bytes = a.bytes.size() / static_cast<size_t>(experts);
    for (int64_t expert = 0; expert < experts; ++expert) {
      whole.expert = expert;
      const TensorView own_a = {
          a.dtype, {whole.rank, whole.in}, a.bytes.subspan(static_cast<size_t>(expert) * a_bytes, a_bytes)};
      addPlaces(tensors, places, whole, own_a, everyNthColumn(b, experts, expert, builder), builder);
    }
  }

  // PEFT before 0.18 took the outputs of a stack [experts, out, in] for its inputs, so its A has `out` columns and its
  // B has `in` rows.
  void checkOrder(const ModuleTensors& tensors, int64_t all, const AdapterModule& whole) const {
    using Shape = std::vector<int64_t>;
    const Shape &a = weights_.find(tensors.a)->shape, &b = weights_.find(tensors.b)->shape;
    if (whole.in == whole.out || a != Shape{all, whole.out} || b != Shape{whole.in, all}) return;
    modules_.refuse(
        tensors.a,
        fmt::format("has shape {}, expected {}: PEFT before 0.18 exchanges the inputs and outputs of stacked "
                    "experts; train the adapter with PEFT 0.18 or later, or adapt the experts' linears as "
                    "modules",
                    shapeText(a), shapeText(Shape{all, whole.in})));
  }

  // Adds the module `whole`, with A and B, at each of its places.
  void addPlaces(const ModuleTensors& tensors, const std::vector<ModulePlace>& places, const AdapterModule& whole,
                 const TensorView& a, const TensorView& b, AdapterBuilder& builder) {
    for (const ModulePlace& place : places) {
      checkPlacedOnce(tensors, place, whole.expert);
      const SourceRows& rows = place.target->in_module;
      AdapterModule module = whole;
      module.module_id = place.target->module_id;
      module.in = place.in();
      module.out = place.out();
      module.magnitude = takeRows(whole.magnitude, rows, module.out);
      module.bias = takeRows(whole.bias, rows, module.out);
      builder.add(std::move(module), a, sourceRows(b, rows, place.out(), builder));
    }
  }

  // The modules of a fused linear and of its parts adapt the same rows.
  void checkPlacedOnce(const ModuleTensors& tensors, const ModulePlace& place, int64_t expert) {
    const Rows rows = {place.target->row_begin, place.target->row_begin + place.out(), tensors.a};
    std::vector<Rows>& placed = placed_[{tensors.layer, place.row, expert}];
    for (const Rows& other : placed) {
      if (rows.begin >= other.end || other.begin >= rows.end) continue;
      modules_.refuse(
          tensors.a,
          fmt::format("adapts the same weights as another module of the adapter, '{}'; remove one of the two",
                      other.tensor));
    }
    placed.push_back(rows);
  }

  // Reads the DoRA magnitude and the bias, both [module.out].
  void readVectors(const ModuleTensors& tensors, AdapterModule& module, const ValuesForm& form,
                   AdapterBuilder& builder) const {
    if (!tensors.magnitude.empty()) {
      module.magnitude = vectorOf(weights_, tensors.magnitude, module.out, form, builder);
      module.magnitude_is_normalised = config_.magnitude_is_normalised;
    }
    if (!tensors.bias.empty()) module.bias = vectorOf(weights_, tensors.bias, module.out, form, builder);
  }

  static std::vector<float> takeRows(const std::vector<float>& values, const SourceRows& rows, int64_t count) {
    std::vector<float> taken;
    if (values.empty()) return taken;
    rows.forEachRun(0, count, [&](int64_t row, int64_t run) {
      taken.insert(taken.end(), values.begin() + row, values.begin() + row + run);
    });
    return taken;
  }

  const TensorView& checked(const std::string& name, const std::vector<int64_t>& shape) const {
    return checkedTensor(weights_, name, shape, "the adapter is of another model or rank", target_.throttle);
  }

  const PeftConfig& config_;
  const TensorFile& weights_;
  std::string_view config_source_;
  const AdapterTarget& target_;
  BaseNames names_;
  AdaptedModules modules_;
  PeftReplacements replacements_;
  std::vector<std::string> of_other_parts_;  // tensors of AdapterTarget::left_out
  struct Rows {
    int64_t begin, end;
    std::string tensor;
  };
  std::map<std::tuple<int32_t, const WeightRow*, int64_t>, std::vector<Rows>> placed_;  // by layer, row and expert
};

Adapter readTensors(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                    std::string name, const AdapterTarget& target, std::string content_hash) {
  const PeftConfig config = PeftConfig::parse(config_text, config_source);
  AdapterBuilder builder(std::move(name), target.throttle);
  builder.keep(weights.keepAlive());
  builder.limitValues(weights.fileSize(), weights.source());
  if (!weights.hasValues()) builder.takeShapesOnly(weights.zeros().data());
  builder.adapter().adapts_parameters = config.modules.targetsParameters();
  PeftReader(config, weights, config_source, target).read(builder);
  return builder.finish(std::move(content_hash));
}

std::string contentHash(std::string_view config_text, const TensorFile& weights, BackgroundThrottle* throttle) {
  Sha256 hash(throttle);
  hash.update(fmt::format("peft {} ", config_text.size()));
  hash.update(config_text);
  hash.update(weights.fileBytes());
  return hash.hex();
}
}  // namespace

PeftInspection inspectPeftAdapter(const PeftFiles& files, const AdapterTarget& target) {
  const PeftConfig config = PeftConfig::parse(files.config, files.config_source);
  AdapterBuilder builder("inspected");
  builder.limitValues(files.weights.fileSize(), files.weights.source());
  if (!files.weights.hasValues()) builder.takeShapesOnly(files.weights.zeros().data());
  return PeftReader(config, files.weights, files.config_source, target).inspect(builder);
}

Adapter readPeftAdapter(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                        std::string name, const AdapterTarget& target) {
  return readTensors(config_text, config_source, weights, std::move(name), target,
                     contentHash(config_text, weights, target.throttle));
}

Adapter readPeftAdapter(const std::filesystem::path& dir, std::string name, const AdapterTarget& target) {
  const size_t most = largestPeftWeights(target.config, target.table, target.max_rank);
  return readPeftAdapter(readUnchanged(openerOf(dir), [&](FileReader& files) { return readPeftFiles(files, most); }),
                         std::move(name), target);
}

// The hash is always of the bytes that were read. Stamps do not show every change: on tmpfs, only the first write to a
// page of a mapping.
Adapter readPeftAdapter(const PeftFiles& files, std::string name, const AdapterTarget& target) {
  const std::string hash =
      files.weights.hasValues() ? contentHash(files.config, files.weights, target.throttle) : std::string();
  return readTensors(files.config, files.config_source, files.weights, std::move(name), target, hash);
}

}  // namespace chorus
