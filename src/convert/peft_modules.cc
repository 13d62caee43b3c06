#include "convert/peft_modules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file.h"
#include "lora/adapter_builder.h"
#include "lora/adapter_files.h"
#include "lora/module_ids.h"
#include "lora/nemo_reader.h"
#include "lora/peft_keys.h"
#include "lora/peft_reader.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// Config fields with an effect that A, B and magnitudes of linears cannot express, and the value without effect. Values
// for which saysNothing() is true have no effect either.
constexpr std::pair<const char*, const char*> kBeyondLinears[] = {{"bias", "none"},
                                                                  {"lora_bias", nullptr},
                                                                  {"modules_to_save", nullptr},
                                                                  {"trainable_token_indices", nullptr},
                                                                  {"target_parameters", nullptr}};

bool saysNothing(const OrderedJson& value) {
  return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
}

OrderedJson readConfig(const fs::path& path) {
  const JsonLimits limits{.max_bytes = kMaxPeftConfigBytes, .max_depth = 16};
  OrderedJson json = parseOrderedJson(readFile(path, kMaxPeftConfigBytes), path.string(), limits);
  if (!json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", path.string());
  // The authors' DoRA code writes this peft_type. The other fields that matter are LoRA's.
  if (json.contains("peft_type") && json["peft_type"] == "DORA") {
    json["peft_type"] = "LORA";
    json["use_dora"] = true;
    for (const char* field : {"dora_simple", "enable_lora", "merge_weights", "Wdecompose_target_modules"}) {
      json.erase(field);
    }
  }
  for (const auto& [field, nothing] : kBeyondLinears) {
    const auto it = json.find(field);
    if (it == json.end() || saysNothing(*it) || (nothing != nullptr && *it == nothing)) continue;
    fail(ErrorCode::kUnsupported, "{}: '{}' is {}; only A, B and DoRA's magnitudes of linears can be converted",
         path.string(), field, it->dump().substr(0, 100));
  }
  return json;
}

std::optional<PeftKey> keyOf(std::string name) {
  // The name of magnitudes in files of the authors' DoRA code.
  constexpr std::string_view kMagnitude = ".weight_m_wdecomp";
  if (const size_t at = name.rfind(kMagnitude); at != std::string::npos) {
    name.replace(at, kMagnitude.size(), ".lora_magnitude_vector");
  }
  return parsePeftKey(name);
}

std::string PeftModule::* slotOf(PeftPart part) {
  switch (part) {
    case PeftPart::kA:
      return &PeftModule::key_a;
    case PeftPart::kB:
      return &PeftModule::key_b;
    case PeftPart::kMagnitude:
      return &PeftModule::key_magnitude;
    default:
      return nullptr;
  }
}

class ModuleReader {
 public:
  ModuleReader(const PeftConfig& config, std::string_view config_source, const TensorFile& weights)
      : config_(config), config_source_(config_source), weights_(weights) {}

  std::vector<PeftModule> read() {
    std::vector<std::string> names = weights_.names();
    if (weights_.source().ends_with(".safetensors")) std::sort(names.begin(), names.end());
    for (const std::string& name : names) collect(name);
    if (modules_.empty()) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    for (PeftModule& module : modules_) check(module);
    return std::move(modules_);
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
  }

  void collect(const std::string& name) {
    const std::optional<PeftKey> key = keyOf(name);
    std::string PeftModule::* const part = key ? slotOf(key->part) : nullptr;
    if (part == nullptr) {
      fail(ErrorCode::kUnsupported,
           "{}: tensor '{}' is no lora_A, lora_B or lora_magnitude_vector of a linear; nothing else can be converted",
           weights_.source(), name);
    }
    if (!config_.modules.includes(key->module)) {
      refuse(name, fmt::format("is not among the modules that {} targets; the two files are of different adapters",
                               config_source_));
    }
    const auto [slot, is_new] = index_.emplace(key->module, modules_.size());
    if (is_new) modules_.push_back({.name = key->module});
    std::string& held = modules_[slot->second].*part;
    if (!held.empty()) refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", held));
    held = name;
  }

  const TensorView* checked(const std::string& name) const {
    const TensorView* tensor = weights_.find(name);
    if (!isAdapterDType(tensor->dtype)) {
      refuse(name, fmt::format("is {}; float32, float16, bfloat16 and float64 are read", dtypeName(tensor->dtype)));
    }
    if (tensor->bytes.empty()) refuse(name, "holds no values");
    if (!allFinite(tensor->bytes, tensor->dtype)) refuse(name, "holds values that are not finite");
    return tensor;
  }

  void check(PeftModule& module) const {
    if (module.key_a.empty() || module.key_b.empty()) {
      const bool no_a = module.key_a.empty();
      const std::string& present = !module.key_b.empty()   ? module.key_b
                                   : !module.key_a.empty() ? module.key_a
                                                           : module.key_magnitude;
      refuse(present, fmt::format("belongs to a module whose {} is missing", no_a ? "lora_A" : "lora_B"));
    }
    module.a = checked(module.key_a);
    module.b = checked(module.key_b);
    const int64_t rank = config_.rankOf(module.name);
    if (module.a->shape.size() != 2 || module.a->shape[0] != rank) {
      refuse(module.key_a, fmt::format("has shape {}, expected [{}, inputs] by the rank in {}",
                                       shapeText(module.a->shape), rank, config_source_));
    }
    if (module.b->shape.size() != 2 || module.b->shape[1] != rank) {
      refuse(module.key_b, fmt::format("has shape {}, expected [outputs, {}] by the rank in {}",
                                       shapeText(module.b->shape), rank, config_source_));
    }
    module.scale = config_.scaleOf(module.name);
    if (!std::isfinite(module.scale)) {
      fail(ErrorCode::kInvalidArgument, "{}: lora_alpha of '{}' is out of range", config_source_, module.name);
    }
    if (config_.use_dora != !module.key_magnitude.empty()) {
      if (config_.use_dora) {
        refuse(module.key_a, fmt::format("has no lora_magnitude_vector, although {} sets use_dora", config_source_));
      }
      refuse(module.key_magnitude,
             fmt::format("is a DoRA magnitude, although {} does not set use_dora", config_source_));
    }
    if (!config_.use_dora) return;
    module.magnitude = checked(module.key_magnitude);
    const int64_t out = module.out();
    const auto& shape = module.magnitude->shape;
    if (shape != std::vector<int64_t>{out} && shape != std::vector<int64_t>{out, 1} &&
        shape != std::vector<int64_t>{1, out}) {
      refuse(module.key_magnitude, fmt::format("has shape {}, expected [{}]", shapeText(shape), out));
    }
  }

  const PeftConfig& config_;
  std::string_view config_source_;
  const TensorFile& weights_;
  std::vector<PeftModule> modules_;
  std::map<std::string, size_t> index_;
};
}  // namespace

PeftModules readPeftModules(const fs::path& dir) {
  const fs::path config_path = dir / kPeftConfigFile;
  OrderedJson json = readConfig(config_path);
  const PeftConfig config = PeftConfig::parse(json.dump(), config_path.string());
  TensorFile weights = openPeftWeights(dir);
  std::vector<PeftModule> modules = ModuleReader(config, config_path.string(), weights).read();
  const std::string source = weights.source();
  return {source,
          std::move(json),
          config.use_dora,
          config.magnitude_is_normalised,
          std::make_shared<const TensorFile>(std::move(weights)),
          std::move(modules)};
}

namespace {

// The name of a NeMo adapter's linear, which has the id that loraPlaceOf() finds for it.
std::string nameInLayer(int32_t module_id) {
  switch (module_id) {
    case kAttnQkv:
      return "self_attention.query_key_value";
    case kAttnQ:
      return "self_attention.q_proj";
    case kAttnK:
      return "self_attention.k_proj";
    case kAttnV:
      return "self_attention.v_proj";
    case kAttnDense:
      return "self_attention.dense";
    case kMlpGateUp:
      return "mlp.gate_up_proj";
    case kMlpGate:
      return "mlp.up_proj";
    case kMlp4HToH:
      return "mlp.dense_4h_to_h";
    default:
      return "mlp.dense_h_to_4h";
  }
}
}  // namespace

PeftModules readNemoModulesOf(const fs::path& path) {
  struct Memory {
    NemoFiles files;
    NemoModules modules;
  };
  const auto memory = std::make_shared<Memory>();
  memory->files = std::get<NemoFiles>(readAdapterFiles(AdapterLocation::of(path), availableMemory()).files);
  const NemoFiles& files = memory->files;
  memory->modules = readNemoModules(files, NemoShape::of(files.config, files.config_source));
  PeftModules read{.source = files.source};
  for (const NemoModule& module : memory->modules.modules) {
    read.modules.push_back({.name = fmt::format("layers.{}.{}", module.layer, nameInLayer(module.module_id)),
                            .key_a = module.name + ".linear_in.weight",
                            .key_b = module.name + ".linear_out.weight",
                            .a = &module.a,
                            .b = &module.b,
                            .scale = memory->modules.scale});
  }
  read.memory = memory;
  return read;
}

}  // namespace chorus
