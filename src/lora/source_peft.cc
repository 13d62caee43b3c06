#include "lora/source_peft.h"

#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/pace.h"
#include "base/sha256.h"
#include "lora/adapter_builder.h"
#include "lora/peft_config.h"

namespace chorus {
namespace {

enum class Part { kA, kB, kMagnitude };

struct TensorKey {
  std::string module;       // in the base model: "model.layers.0.self_attn.q_proj"
  std::string module_name;  // "self_attn.q_proj"
  int32_t layer = 0;
  Part part = Part::kA;
};

bool removeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// PEFT writes `<module>.lora_A.weight`; files saved without its key clean-up carry the adapter's name, `.default`.
std::optional<Part> splitPart(std::string_view& key) {
  removeSuffix(key, ".weight");
  removeSuffix(key, ".default");
  if (removeSuffix(key, ".lora_A")) return Part::kA;
  if (removeSuffix(key, ".lora_B")) return Part::kB;
  if (removeSuffix(key, ".lora_magnitude_vector")) return Part::kMagnitude;
  return std::nullopt;
}

// nullopt when the tensor is not a LoRA tensor of a layer.
std::optional<TensorKey> parseKey(std::string_view key) {
  TensorKey result;
  const auto part = splitPart(key);
  if (!part) return std::nullopt;
  result.part = *part;
  constexpr std::string_view kPrefix = "base_model.model.";
  if (key.starts_with(kPrefix)) key.remove_prefix(kPrefix.size());
  result.module = key;

  constexpr std::string_view kLayers = "layers.";
  if (key.starts_with("model.")) key.remove_prefix(std::string_view("model.").size());
  if (!key.starts_with(kLayers)) return std::nullopt;
  key.remove_prefix(kLayers.size());
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), result.layer);
  if (error != std::errc() || end == key.data() + key.size() || *end != '.' || result.layer < 0) return std::nullopt;
  key.remove_prefix(static_cast<size_t>(end - key.data()) + 1);
  result.module_name = key;
  return result;
}

struct ModuleTensors {
  TensorKey key;
  std::string name_a, name_b, name_magnitude;  // tensor names, empty when absent
};

class PeftReader {
 public:
  PeftReader(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
             const AdapterTarget& target)
      : config_(config), weights_(weights), config_source_(config_source), target_(target) {}

  void read(AdapterBuilder& builder) {
    for (const std::string& name : weights_.names()) collect(name);
    if (modules_.empty()) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    for (const auto& [place, tensors] : modules_) addModule(tensors, builder);
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
  }

  void collect(const std::string& name) {
    auto key = parseKey(name);
    if (!key || findModules(target_.table, key->module_name).empty()) {
      refuse(name, fmt::format("adapts nothing that {} offers to adapters; it offers {} of layers 0 to {}",
                               target_.config.architecture, moduleNames(target_.table),
                               target_.config.num_hidden_layers - 1));
    }
    if (key->layer >= target_.config.num_hidden_layers) {
      refuse(name, fmt::format("is of layer {}, the model has {} layers; the adapter is of another model", key->layer,
                               target_.config.num_hidden_layers));
    }
    if (!config_.modules.includes(key->module)) {
      refuse(name, fmt::format("is not among the modules that {} targets; the two files are of different adapters",
                               config_source_));
    }
    ModuleTensors& tensors = modules_[{key->layer, key->module_name}];
    std::string& slot = key->part == Part::kA   ? tensors.name_a
                        : key->part == Part::kB ? tensors.name_b
                                                : tensors.name_magnitude;
    if (!slot.empty()) refuse(name, fmt::format("stands for the same weights as '{}'", slot));
    slot = name;
    tensors.key = std::move(*key);
  }

  const TensorView& checked(const std::string& name, const std::vector<int64_t>& shape) const {
    const TensorView& tensor = *weights_.find(name);
    if (tensor.shape != shape) {
      refuse(name, fmt::format("has shape {}, expected {}; the adapter is of another model or rank",
                               shapeText(tensor.shape), shapeText(shape)));
    }
    if (!isAdapterDType(tensor.dtype)) {
      refuse(name, fmt::format("is {}; float32, float16, bfloat16 and float64 are read", dtypeName(tensor.dtype)));
    }
    if (!allFinite(tensor.bytes, tensor.dtype))
      refuse(name, "holds values that are not finite; train or save it again");
    return tensor;
  }

  void checkParts(const ModuleTensors& tensors) const {
    if (tensors.name_a.empty() || tensors.name_b.empty()) {
      const bool no_a = tensors.name_a.empty();
      const std::string& present = !tensors.name_b.empty()   ? tensors.name_b
                                   : !tensors.name_a.empty() ? tensors.name_a
                                                             : tensors.name_magnitude;
      refuse(present, fmt::format("stands alone: the module's {} is missing", no_a ? "lora_A" : "lora_B"));
    }
    if (config_.use_dora && tensors.name_magnitude.empty()) {
      refuse(tensors.name_a,
             fmt::format("has no lora_magnitude_vector beside it, though {} says use_dora", config_source_));
    }
    if (!config_.use_dora && !tensors.name_magnitude.empty()) {
      refuse(tensors.name_magnitude,
             fmt::format("is a DoRA magnitude, though {} does not say use_dora", config_source_));
    }
  }

  void addModule(const ModuleTensors& tensors, AdapterBuilder& builder) {
    checkParts(tensors);
    const TensorKey& key = tensors.key;
    const int64_t rank = config_.rankOf(key.module);
    if (target_.max_rank > 0 && rank > target_.max_rank) {
      refuse(tensors.name_a,
             fmt::format("has rank {}, above the maximum of {}; raise --max_lora_rank", rank, target_.max_rank));
    }
    const float scale = config_.scaleOf(key.module);
    if (!std::isfinite(scale)) {
      fail(ErrorCode::kInvalidArgument, "{}: lora_alpha of '{}' is out of range", config_source_, key.module);
    }
    const std::vector<ModulePlace> places = findModules(target_.table, key.module_name);
    const ModulePlace& first = places.front();
    const int64_t out = first.target->in_module.rowsOfSource(first.out());
    const TensorView& a = checked(tensors.name_a, {rank, first.in()});
    const TensorView& b = checked(tensors.name_b, {out, rank});
    std::vector<float> magnitude;
    if (!tensors.name_magnitude.empty()) magnitude = toFloats(checked(tensors.name_magnitude, {out}));
    for (const ModulePlace& place : places) {
      if (!placed_.emplace(key.layer, place.target->module_id).second) {
        refuse(tensors.name_a, "adapts weights that another module of the adapter adapts too");
      }
      AdapterModule module = {.module_id = place.target->module_id,
                              .module_name = key.module_name,
                              .layer = key.layer,
                              .rank = rank,
                              .in = place.in(),
                              .out = place.out(),
                              .scale = scale};
      const SourceRows& rows = place.target->in_module;
      if (!magnitude.empty()) {
        rows.forEachRun(0, module.out, [&](int64_t row, int64_t count) {
          module.magnitude.insert(module.magnitude.end(), magnitude.begin() + row, magnitude.begin() + row + count);
        });
      }
      builder.add(std::move(module), a, takeRows(b, rows, place.out(), builder));
    }
  }

  // The rows of B that are one part's.
  static TensorView takeRows(const TensorView& b, const SourceRows& rows, int64_t count, AdapterBuilder& builder) {
    const size_t row_bytes = static_cast<size_t>(b.shape[1]) * dtypeSize(b.dtype);
    TensorView part = {b.dtype, {count, b.shape[1]}, {}};
    if (rows.block == 0) {
      part.bytes = b.bytes.subspan(static_cast<size_t>(rows.begin) * row_bytes, static_cast<size_t>(count) * row_bytes);
      return part;
    }
    const auto gathered = std::make_shared<std::vector<std::byte>>();
    gathered->reserve(static_cast<size_t>(count) * row_bytes);
    rows.forEachRun(0, count, [&](int64_t row, int64_t run) {
      const auto bytes = b.bytes.subspan(static_cast<size_t>(row) * row_bytes, static_cast<size_t>(run) * row_bytes);
      gathered->insert(gathered->end(), bytes.begin(), bytes.end());
      worked(bytes.size());
    });
    part.bytes = *gathered;
    builder.keep(gathered);
    return part;
  }

  const PeftConfig& config_;
  const TensorFile& weights_;
  std::string_view config_source_;
  const AdapterTarget& target_;
  std::map<std::pair<int32_t, std::string>, ModuleTensors> modules_;
  std::set<std::pair<int32_t, int32_t>> placed_;  // layer and module id
};
}  // namespace

Adapter readPeftAdapter(std::string_view config_text, std::string_view config_source, const TensorFile& weights,
                        std::string name, const AdapterTarget& target) {
  const PeftConfig config = PeftConfig::parse(config_text, config_source);
  AdapterBuilder builder(std::move(name));
  builder.keep(weights.keepAlive());
  PeftReader(config, weights, config_source, target).read(builder);

  Sha256 hash;
  hash.update(fmt::format("peft {} ", config_text.size()));
  hash.update(config_text);
  hash.update(weights.fileBytes());
  return builder.finish(hash.hex());
}

Adapter readPeftAdapter(const std::filesystem::path& dir, std::string name, const AdapterTarget& target) {
  return readPeftAdapter(readPeftFiles(dir, largestPeftWeights(target.config, target.table, target.max_rank)),
                         std::move(name), target);
}

Adapter readPeftAdapter(const PeftFiles& files, std::string name, const AdapterTarget& target) {
  return readPeftAdapter(files.config, files.config_source, files.weights, std::move(name), target);
}

}  // namespace chorus
