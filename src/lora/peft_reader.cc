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
#include "lora/adapter_builder.h"
#include "lora/adapter_values.h"
#include "lora/module_ids.h"
#include "lora/module_spellings.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"
#include "lora/peft_replacements.h"

namespace chorus {
namespace {

// Names of the tensors of one adapted module; empty when absent.
struct ModuleTensors {
  PeftKey key;
  int32_t layer = -1;  // -1: the embedding or the output head
  std::string name;    // LoraTarget::module_name with its expert's id; outside layers the module's whole name
  // The module's name in the base model's files. Patterns of the configuration may match it or key.module, the name
  // that the module had in training.
  std::string own_name;
  // If a parameter is adapted (target_parameters), its name in the base model, such as "lm_head.weight"; otherwise
  // empty.
  std::string parameter;
  bool is_stack = false;      // mlx-lm's matrices of all experts; `name` has "{expert}"
  bool is_tied_head = false;  // mlx-lm's adapter of the embedding, which is also the output head's: A is b, B is a
  std::string a, b, bias, magnitude;
};

class PeftReader {
 public:
  PeftReader(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
             const AdapterTarget& target)
      : config_(config),
        weights_(weights),
        config_source_(config_source),
        target_(target),
        names_(target.config, target.table),
        layers_(layersName(target.table)),
        replacements_(config, weights, config_source, target) {}

  void read(AdapterBuilder& builder) {
    for (const std::string& name : weights_.names()) collect(name, builder);
    adaptTiedHead();
    if (modules_.empty() && replacements_.empty()) {
      if (!of_other_parts_.empty()) {
        refuse(of_other_parts_.front(), "is of a part of the model that is not served, and so are all others");
      }
      fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    }
    std::set<std::string> adapted;
    for (const auto& [module, tensors] : modules_) adapted.insert(module);
    replacements_.read(adapted, builder);
    for (const auto& [module, tensors] : modules_) addModule(tensors, builder);
    Adapter& adapter = builder.adapter();
    adapter.num_of_other_parts = std::ssize(of_other_parts_);
    adapter.left_out.insert(adapter.left_out.end(), of_other_parts_.begin(), of_other_parts_.end());
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
  }
  [[noreturn]] void refuseUnknown(const std::string& tensor) const {
    refuse(tensor,
           fmt::format("adapts no module of {} that takes adapters; those are {} of layers 0 to {}",
                       target_.config.architecture, moduleNames(target_.table), target_.config.num_hidden_layers - 1));
  }

  void collect(const std::string& name, AdapterBuilder& builder) {
    const auto key = parsePeftKey(name);
    if (!key) refuseUnknown(name);
    if (matchesAny(target_.left_out, key->module)) {
      of_other_parts_.push_back(name);
      return;
    }
    switch (key->part) {
      case PeftPart::kBlockCopy:
        // PEFT also saves the embedding of a saved block under the wrapper's name.
        if (!names_.isEmbedding(key->module) || !config_.modules.saves(names_.embedding)) refuseUnknown(name);
        [[fallthrough]];
      case PeftPart::kLeftOut:
        builder.adapter().left_out.push_back(name);
        return;
      case PeftPart::kBase:
      case PeftPart::kSaved:
      case PeftPart::kTokens:
        if (!replacements_.collect(name, *key)) refuseUnknown(name);
        return;
      default:
        collectLora(name, *key);
    }
  }

  // If the module holds all experts of a layer, completes the names of the module and of its place to those of the
  // parameter that the tensor adapts, and returns true. PEFT wraps the module once for each parameter that
  // target_parameters has, in the order of the parameters: the last one's tensors have the module's own name, and those
  // of each one before have one more ".base_layer".
  bool takeExpertParameter(const std::string& name, PeftKey& key, LayerModule& place) const {
    constexpr std::string_view kWrapped = ".base_layer";
    std::string_view module = key.module, in_layer = place.name;
    size_t depth = 0;
    for (; in_layer.ends_with(kWrapped); ++depth) {
      in_layer.remove_suffix(kWrapped.size());
      module.remove_suffix(kWrapped.size());
    }
    std::vector<std::string> parameters = expertParameters(target_.table, in_layer, place.layer);
    if (parameters.empty()) return false;
    std::erase_if(parameters, [&](const std::string& parameter) {
      return !config_.modules.includesParameter(fmt::format("{}.{}", module, parameter));
    });
    if (depth >= parameters.size()) {
      refuse(name, fmt::format("is not of the parameters that {} targets; the two files are of different adapters",
                               config_source_));
    }
    const std::string& parameter = parameters[parameters.size() - 1 - depth];
    place.name = fmt::format("{}.{}", in_layer, parameter);
    key.module = fmt::format("{}.{}", module, parameter);
    return true;
  }

  // Finds the place of a tensor's module in a layer.
  ModuleTensors placeInLayer(const std::string& name, PeftKey key) const {
    ModuleTensors found{.key = key};
    auto place = layerModule(key.module, layers_);
    if (!place) refuseUnknown(name);
    // Layers may have different modules. A layer that the model does not have counts as its last one until it is
    // refused.
    const int32_t layer = place->layer;
    const auto layers = static_cast<int32_t>(target_.config.num_hidden_layers);
    place->layer = std::min(layer, layers - 1);
    const std::string stacked =
        key.form == AdapterForm::kMlx ? stackedModuleOf(place->name, target_.table, place->layer) : std::string();
    if (!stacked.empty()) {
      found.is_stack = true;
      place->name = stacked;
    } else if (takeExpertParameter(name, key, *place)) {
      found.parameter = key.module;
    } else {
      place->name = nameInTable(place->name, target_.table, place->layer);
    }
    const auto places =
        findModules(target_.table, found.is_stack ? expertName(place->name, 0) : place->name, place->layer);
    if (places.empty() || places.front().isOfAllExperts() != !found.parameter.empty()) refuseUnknown(name);
    if (layer >= layers) {
      refuse(name, fmt::format("belongs to layer {}, but the model has {} layers; the adapter is of another model",
                               layer, layers));
    }
    if (config_.mlx && config_.mlx->last_layers > 0 && layer < layers - config_.mlx->last_layers) {
      refuse(name, fmt::format("belongs to layer {}, but {} adapts only the last {} of {} layers; the two files are of "
                               "different adapters",
                               layer, config_source_, config_.mlx->last_layers, layers));
    }
    found.layer = layer;
    found.name = place->name;
    found.own_name = fmt::format("{}{}.{}", layers_, layer, place->name);
    found.key = std::move(key);
    return found;
  }

  void collectLora(const std::string& name, const PeftKey& key) {
    const bool embedding = names_.isEmbedding(key.module);
    const bool head = names_.isHead(key.module);
    ModuleTensors found{.key = key};
    if (embedding || head) {
      found.name = found.own_name = embedding ? names_.embedding : names_.head;
    } else {
      found = placeInLayer(name, key);
    }
    if (found.parameter.empty() && isParameter(name, found)) found.parameter = found.key.module + ".weight";
    // Only PEFT has names of their own for the matrices of an embedding.
    const bool looked_up = key.part == PeftPart::kEmbeddingA || key.part == PeftPart::kEmbeddingB;
    if (key.form == AdapterForm::kPeft && looked_up != (embedding && found.parameter.empty()) &&
        key.part != PeftPart::kMagnitude) {
      refuse(name, looked_up ? "has the name of an embedding's tensor, but its module is not adapted as an embedding"
                             : "has the name of a linear layer's tensor, but its module is adapted as an embedding");
    }
    if (key.form != AdapterForm::kPeft && embedding && key.part == PeftPart::kMagnitude) {
      refuse(name, "is a DoRA magnitude of an embedding, which is read only in PEFT's form");
    }
    auto& tensors =
        modules_.try_emplace(found.layer < 0 ? found.name : fmt::format("layers.{}.{}", found.layer, found.name), found)
            .first->second;
    std::string& slot = slotOf(tensors, key.part);
    // PEFT writes the magnitude twice for an adapted embedding or output head that it also saves whole.
    const bool may_be_twice = (embedding || head) && key.part == PeftPart::kMagnitude;
    if (!slot.empty() && !(may_be_twice && sameValues(*weights_.find(slot), *weights_.find(name)))) {
      refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", slot));
    }
    if (tensors.key.form != key.form || tensors.is_stack != found.is_stack) {
      refuse(name, "is of a module of which other tensors have the names of another tool");
    }
    slot = name;
  }

  // mlx-lm adapts the output head together with the embedding in a model that ties the two.
  void adaptTiedHead() {
    if (!target_.config.tie_word_embeddings) return;
    const auto embedding = modules_.find(names_.embedding);
    if (embedding == modules_.end() || embedding->second.key.form != AdapterForm::kMlx) return;
    ModuleTensors head = embedding->second;
    head.name = names_.head;
    head.is_tied_head = true;
    if (!modules_.try_emplace(names_.head, head).second) {
      refuse(embedding->second.a,
             "adapts the output head too, which the model ties to the embedding, but the file has "
             "tensors of both");
    }
  }

  static std::string& slotOf(ModuleTensors& tensors, PeftPart part) {
    switch (part) {
      case PeftPart::kA:
      case PeftPart::kEmbeddingA:
        return tensors.a;
      case PeftPart::kB:
      case PeftPart::kEmbeddingB:
        return tensors.b;
      case PeftPart::kBias:
        return tensors.bias;
      default:
        return tensors.magnitude;
    }
  }

  // Whether the module's weight is adapted as a parameter. Refuses a module that the configuration does not adapt.
  bool isParameter(const std::string& name, const ModuleTensors& tensors) const {
    const auto any = [&](auto&& is) { return is(tensors.key.module) || is(tensors.own_name); };
    const bool by_module = any([&](const std::string& module) { return config_.modules.includes(module); }) ||
                           isTiedHead(tensors.key.module);
    const bool by_parameter =
        any([&](const std::string& module) { return config_.modules.includesParameter(module + ".weight"); });
    if (any([&](const std::string& module) { return config_.modules.saves(module); })) {
      refuse(name,
             fmt::format("belongs to a module that {} lists in modules_to_save; such a module cannot have LoRA tensors",
                         config_source_));
    }
    if (!by_module && !by_parameter) {
      refuse(name, fmt::format("is not among the modules that {} targets; the two files are of different adapters",
                               config_source_));
    }
    // target_modules may match any module, so a parameter that is named as well takes precedence.
    return by_parameter;
  }

  // With ensure_weight_tying, the output head of a model with tied embeddings uses the embedding's adapter.
  bool isTiedHead(const std::string& module) const {
    return config_.ensure_weight_tying && target_.config.tie_word_embeddings && names_.isHead(module) &&
           config_.modules.includes(names_.embedding);
  }

  void checkParts(const ModuleTensors& tensors) const {
    if (tensors.a.empty() || tensors.b.empty()) {
      const std::string& present = !tensors.b.empty()      ? tensors.b
                                   : !tensors.a.empty()    ? tensors.a
                                   : !tensors.bias.empty() ? tensors.bias
                                                           : tensors.magnitude;
      refuse(present, fmt::format("belongs to a module whose {} is missing", tensors.a.empty() ? "lora_A" : "lora_B"));
    }
    const auto checkPresence = [&](bool asked, const std::string& tensor, const char* what, const char* field) {
      if (asked && tensor.empty()) {
        refuse(tensors.a, fmt::format("has no {}, although {} sets {}", what, config_source_, field));
      }
      if (!asked && !tensor.empty()) {
        refuse(tensor, fmt::format("is a {}, although {} does not set {}", what, config_source_, field));
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
    const int64_t rank =
        isTiedHead(tensors.key.module) ? config_.rankOf(names_.embedding) : config_.rankOf(pattern_name, own_name);
    if (target_.max_rank > 0 && rank > target_.max_rank) {
      refuse(tensors.a,
             fmt::format("has rank {}, above the maximum of {}; raise --max_lora_rank", rank, target_.max_rank));
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
      refuse(tensors.b, fmt::format("has torchtune's name, but the order in which torchtune keeps q and k of {} is not "
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
      refuse(tensors.magnitude, "is a DoRA magnitude of experts, which mlx-lm does not have");
    const auto placesOf = [&](int64_t expert) {
      return findModules(target_.table, expertName(tensors.name, expert), tensors.layer);
    };
    const std::vector<ModulePlace> first = placesOf(0);
    const int64_t experts = first.front().row->experts;
    whole.in = first.front().in();
    whole.out = first.front().target->in_module.rowsOfSource(first.front().out());
    const auto matrices = lowRankOfExperts(weights_, tensors.a, tensors.b, {whole.rank, whole.in, whole.out}, experts);
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
      refuse(tensors.a,
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
    return checkedTensor(weights_, name, shape, "the adapter is of another model or rank");
  }

  const PeftConfig& config_;
  const TensorFile& weights_;
  std::string_view config_source_;
  const AdapterTarget& target_;
  BaseNames names_;
  std::string layers_;  // layersName()
  PeftReplacements replacements_;
  std::vector<std::string> of_other_parts_;  // tensors of AdapterTarget::left_out
  std::map<std::string, ModuleTensors> modules_;
  struct Rows {
    int64_t begin, end;
    std::string tensor;
  };
  std::map<std::tuple<int32_t, const WeightRow*, int64_t>, std::vector<Rows>> placed_;  // by layer, row and expert
};
}  // namespace

namespace {

Adapter readTensors(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                    std::string name, const AdapterTarget& target, std::string content_hash) {
  const PeftConfig config = PeftConfig::parse(config_text, config_source);
  AdapterBuilder builder(std::move(name));
  builder.keep(weights.keepAlive());
  if (!weights.hasValues()) builder.takeShapesOnly(weights.zeros().data());
  builder.adapter().adapts_parameters = config.modules.targetsParameters();
  PeftReader(config, weights, config_source, target).read(builder);
  return builder.finish(std::move(content_hash));
}

std::string contentHash(std::string_view config_text, const TensorFile& weights) {
  Sha256 hash;
  hash.update(fmt::format("peft {} ", config_text.size()));
  hash.update(config_text);
  hash.update(weights.fileBytes());
  return hash.hex();
}
}  // namespace

Adapter readPeftAdapter(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                        std::string name, const AdapterTarget& target) {
  return readTensors(config_text, config_source, weights, std::move(name), target, contentHash(config_text, weights));
}

Adapter readPeftAdapter(const std::filesystem::path& dir, std::string name, const AdapterTarget& target) {
  const size_t most = largestPeftWeights(target.config, target.table, target.max_rank);
  return readPeftAdapter(readUnchanged(openerOf(dir), [&](FileReader& files) { return readPeftFiles(files, most); }),
                         std::move(name), target);
}

Adapter readPeftAdapter(const PeftFiles& files, std::string name, const AdapterTarget& target,
                        const KnownPeftContent& known) {
  const bool is_known = !known.stamps.empty() && files.stamps == known.stamps;
  const std::string hash = !files.weights.hasValues() ? ""
                           : is_known                 ? known.content_hash
                                                      : contentHash(files.config, files.weights);
  return readTensors(files.config, files.config_source, files.weights, std::move(name), target, hash);
}

}  // namespace chorus
