#include "lora/peft_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/background_throttle.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/sha256.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"
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
  // If a parameter is adapted (target_parameters), its name in the base model, such as "lm_head.weight"; otherwise
  // empty.
  std::string parameter;
  std::string a, b, bias, magnitude;
};

// Transposes a [rows, columns] matrix.
std::shared_ptr<std::vector<std::byte>> transposed(const TensorView& matrix) {
  const size_t size = dtypeSize(matrix.dtype);
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const auto columns = static_cast<size_t>(matrix.shape[1]);
  auto out = std::make_shared<std::vector<std::byte>>(matrix.bytes.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::copy_n(matrix.bytes.begin() + static_cast<std::ptrdiff_t>((r * columns + c) * size), size,
                  out->begin() + static_cast<std::ptrdiff_t>((c * rows + r) * size));
    }
    chargeThrottle(columns * size);
  }
  return out;
}

// Columns first, first + n, first + 2 n and so on of a matrix.
std::shared_ptr<std::vector<std::byte>> everyNth(const TensorView& matrix, int64_t n, int64_t first) {
  const size_t size = dtypeSize(matrix.dtype);
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  auto out = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(rows * (columns / n)) * size);
  std::byte* to = out->data();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = first; c < columns; c += n, to += size) {
      std::memcpy(to, matrix.bytes.data() + static_cast<size_t>(r * columns + c) * size, size);
    }
    chargeThrottle(static_cast<size_t>(columns / n) * size);
  }
  return out;
}

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
    for (const std::string& name : weights_.names()) collect(name);
    if (modules_.empty() && replacements_.empty()) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    std::set<std::string> adapted;
    for (const auto& [module, tensors] : modules_) adapted.insert(module);
    replacements_.read(adapted, builder);
    for (const auto& [module, tensors] : modules_) addModule(tensors, builder);
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

  void collect(const std::string& name) {
    const auto key = parsePeftKey(name);
    if (!key) refuseUnknown(name);
    switch (key->part) {
      case PeftPart::kCopy:
        return;
      case PeftPart::kBlockCopy:
        // PEFT also saves the embedding of a saved block under the wrapper's name.
        if (!names_.isEmbedding(key->module) || !config_.modules.saves(names_.embedding)) refuseUnknown(name);
        return;
      case PeftPart::kBase:
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

  void collectLora(const std::string& name, PeftKey key) {
    const bool embedding = names_.isEmbedding(key.module);
    const bool head = names_.isHead(key.module);
    ModuleTensors found{.key = key};
    if (embedding || head) {
      found.name = embedding ? names_.embedding : names_.head;
    } else {
      auto place = layerModule(key.module, layers_);
      // Layers may have different modules. A layer that the model does not have counts as its last one until it is
      // refused.
      const int32_t layer = place ? place->layer : 0;
      if (place) place->layer = std::min(layer, static_cast<int32_t>(target_.config.num_hidden_layers) - 1);
      if (place && takeExpertParameter(name, key, *place)) found.parameter = key.module;
      const auto places = place ? findModules(target_.table, place->name, place->layer) : std::vector<ModulePlace>();
      if (places.empty() || places.front().isOfAllExperts() != !found.parameter.empty()) refuseUnknown(name);
      if (layer >= target_.config.num_hidden_layers) {
        refuse(name, fmt::format("belongs to layer {}, but the model has {} layers; the adapter is of another model",
                                 layer, target_.config.num_hidden_layers));
      }
      found.layer = layer;
      found.name = place->name;
    }
    found.key = key;
    if (found.parameter.empty() && isParameter(name, key)) found.parameter = key.module + ".weight";
    const bool looked_up = key.part == PeftPart::kEmbeddingA || key.part == PeftPart::kEmbeddingB;
    if (looked_up != (embedding && found.parameter.empty()) && key.part != PeftPart::kMagnitude) {
      refuse(name, looked_up ? "has the name of an embedding's tensor, but its module is not adapted as an embedding"
                             : "has the name of a linear layer's tensor, but its module is adapted as an embedding");
    }
    auto& tensors =
        modules_.try_emplace(found.layer < 0 ? found.name : fmt::format("layers.{}.{}", found.layer, found.name), found)
            .first->second;
    std::string& slot = slotOf(tensors, key.part);
    // PEFT writes the magnitude twice for an adapted embedding or output head that it also saves whole.
    const bool may_be_twice = (embedding || head) && key.part == PeftPart::kMagnitude;
    if (!slot.empty() && !(may_be_twice && sameValues(slot, name))) {
      refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", slot));
    }
    slot = name;
  }

  bool sameValues(const std::string& one, const std::string& other) const {
    const TensorView &a = *weights_.find(one), &b = *weights_.find(other);
    return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
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
  bool isParameter(const std::string& name, const PeftKey& key) const {
    const bool by_module = config_.modules.includes(key.module) || isTiedHead(key.module);
    const bool by_parameter = config_.modules.includesParameter(key.module + ".weight");
    if (config_.modules.saves(key.module)) {
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
    // A tied head uses the embedding's matrices and therefore their rank, but the scale of its own name.
    const int64_t rank = config_.rankOf(isTiedHead(tensors.key.module) ? names_.embedding : pattern_name);
    if (target_.max_rank > 0 && rank > target_.max_rank) {
      refuse(tensors.a,
             fmt::format("has rank {}, above the maximum of {}; raise --max_lora_rank", rank, target_.max_rank));
    }
    const float scale = config_.scaleOf(pattern_name);
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
      readVectors(tensors, module);
      addMatrices(tensors, std::move(module), builder);
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
      readVectors(tensors, module);
      addMatrices(tensors, std::move(module), builder);
      return;
    }
    // The parameter is a matrix [tokens, hidden], so B is [tokens, rank] and A is [rank, hidden]. AdapterModule holds
    // their transposes.
    const TensorView& of_tokens = checked(tensors.b, {module.in, rank});
    const TensorView& of_hidden = checked(tensors.a, {rank, module.out});
    if (builder.takesShapesOnly()) {
      builder.add(std::move(module), of_tokens, of_hidden);
      return;
    }
    const auto a = transposed(of_tokens);
    const auto b = transposed(of_hidden);
    builder.keep(a);
    builder.keep(b);
    const TensorView a_view = {of_tokens.dtype, {rank, module.in}, *a};
    const TensorView b_view = {of_hidden.dtype, {module.out, rank}, *b};
    builder.add(std::move(module), a_view, b_view);
  }

  void addMatrices(const ModuleTensors& tensors, AdapterModule module, AdapterBuilder& builder) {
    const TensorView& a = checked(tensors.a, {module.rank, module.in});
    const TensorView& b = checked(tensors.b, {module.out, module.rank});
    builder.add(std::move(module), a, b);
  }

  void addLayerModule(const ModuleTensors& tensors, AdapterModule whole, AdapterBuilder& builder) {
    const std::vector<ModulePlace> places = findModules(target_.table, tensors.name, tensors.layer);
    const ModulePlace& first = places.front();
    whole.in = first.in();
    whole.out = first.target->in_module.rowsOfSource(first.out());
    if (first.isOfAllExperts()) return addExperts(tensors, places, whole, builder);
    const TensorView& a = checked(tensors.a, {whole.rank, whole.in});
    const TensorView& b = checked(tensors.b, {whole.out, whole.rank});
    readVectors(tensors, whole);
    whole.expert = first.expert;
    addPlaces(tensors, places, whole, a, b, builder);
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
    const size_t b_bytes = b.bytes.size() / static_cast<size_t>(experts);
    for (int64_t expert = 0; expert < experts; ++expert) {
      whole.expert = expert;
      const TensorView own_a = {
          a.dtype, {whole.rank, whole.in}, a.bytes.subspan(static_cast<size_t>(expert) * a_bytes, a_bytes)};
      TensorView own_b = {b.dtype, {whole.out, whole.rank}, b.bytes.first(b_bytes)};
      if (!builder.takesShapesOnly()) {
        const auto gathered = everyNth(b, experts, expert);
        builder.keep(gathered);
        own_b.bytes = *gathered;
      }
      addPlaces(tensors, places, whole, own_a, own_b, builder);
    }
  }

  // Adds the module `whole`, with A and B, at each of its places.
  void addPlaces(const ModuleTensors& tensors, const std::vector<ModulePlace>& places, const AdapterModule& whole,
                 const TensorView& a, const TensorView& b, AdapterBuilder& builder) {
    for (const ModulePlace& place : places) {
      if (!placed_.emplace(tensors.layer, place.target->module_id, whole.expert).second) {
        refuse(tensors.a, "adapts the same weights as another module of the adapter");
      }
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

  // Reads the DoRA magnitude and the bias, both [module.out].
  void readVectors(const ModuleTensors& tensors, AdapterModule& module) const {
    if (!tensors.magnitude.empty()) {
      module.magnitude = toFloats(checked(tensors.magnitude, {module.out}));
      module.magnitude_is_normalised = config_.magnitude_is_normalised;
    }
    if (!tensors.bias.empty()) module.bias = toFloats(checked(tensors.bias, {module.out}));
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
  std::map<std::string, ModuleTensors> modules_;
  std::set<std::tuple<int32_t, int32_t, int64_t>> placed_;  // layer, module id and expert
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
