#include "convert/peft_modules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"
#include "lora/adapter_builder.h"
#include "lora/adapter_files.h"
#include "lora/adapter_values.h"
#include "lora/module_ids.h"
#include "lora/module_spellings.h"
#include "lora/nemo_reader.h"

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

// The configuration in PEFT's form, with its fields in the order of the file if it is PEFT's.
OrderedJson orderedConfig(const PeftFiles& files, const PeftConfig& config) {
  const JsonLimits limits{.max_bytes = kMaxPeftConfigBytes, .max_depth = 16};
  OrderedJson json = parseOrderedJson(files.config, files.config_source, limits);
  const auto type = json.find("peft_type");
  if (type == json.end() || *type != "LORA") json = parseOrderedJson(config.peft.dump(), files.config_source, limits);
  for (const auto& [field, nothing] : kBeyondLinears) {
    const auto it = json.find(field);
    if (it == json.end() || saysNothing(*it) || (nothing != nullptr && *it == nothing)) continue;
    fail(ErrorCode::kUnsupported, "{}: '{}' is {}; only A, B and DoRA's magnitudes of linears can be converted",
         files.config_source, field, it->dump().substr(0, 100));
  }
  return json;
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
      : config_(config), config_source_(config_source), weights_(weights), builder_("") {}

  // Moves the memory of converted matrices into `storage`.
  std::vector<PeftModule> read(std::vector<std::shared_ptr<const void>>& storage) {
    std::vector<std::string> names = weights_.names();
    if (weights_.source().ends_with(".safetensors")) std::sort(names.begin(), names.end());
    for (const std::string& name : names) collect(name);
    if (modules_.empty()) fail(ErrorCode::kCorrupt, "{}: no LoRA tensors", weights_.source());
    for (PeftModule& module : modules_) check(module);
    storage = std::move(builder_.adapter().storage);
    return std::move(modules_);
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
  }

  void collect(const std::string& name) {
    const std::optional<PeftKey> key = parsePeftKey(name);
    std::string PeftModule::* const part = key ? slotOf(key->part) : nullptr;
    if (part == nullptr) {
      fail(ErrorCode::kUnsupported,
           "{}: tensor '{}' is no lora_A, lora_B or lora_magnitude_vector of a linear; nothing else can be converted",
           weights_.source(), name);
    }
    if (key->form == AdapterForm::kTorchtune) {
      fail(ErrorCode::kUnsupported,
           "{}: tensor '{}' has torchtune's name; the order of its rows depends on the base model, so that only its "
           "PEFT "
           "export can be converted",
           weights_.source(), name);
    }
    if (!config_.modules.includes(key->module)) {
      refuse(name, fmt::format("is not among the modules that {} targets; the two files are of different adapters",
                               config_source_));
    }
    // The base model may have other names for them, which its server refuses.
    if (config_.modules.targetsAllLinear() && isOutsideLayers(key->module)) {
      refuse(name,
             fmt::format("is of the embedding or the output head, which all-linear, the target_modules of {}, does "
                         "not include; name the modules there",
                         config_source_));
    }
    const auto [slot, is_new] = index_.emplace(key->module, modules_.size());
    if (is_new) modules_.push_back({.name = key->module, .form = key->form});
    if (modules_[slot->second].form != key->form) {
      refuse(name, "is of a module of which other tensors have the names of another tool");
    }
    std::string& held = modules_[slot->second].*part;
    if (!held.empty()) refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", held));
    held = name;
  }

  const TensorView& checked(const std::string& name) const {
    const TensorView& tensor = *weights_.find(name);
    if (!isAdapterDType(tensor.dtype)) {
      refuse(name, fmt::format("is {}; float32, float16, bfloat16 and float64 are read", dtypeName(tensor.dtype)));
    }
    if (tensor.bytes.empty()) refuse(name, "holds no values");
    if (!allFinite(tensor.bytes, tensor.dtype)) refuse(name, "holds values that are not finite");
    return tensor;
  }

  // A or B in PEFT's form.
  TensorView matrix(const std::string& name, AdapterForm form) {
    const TensorView& tensor = checked(name);
    if (tensor.shape.size() != 2) refuse(name, fmt::format("has shape {}, expected a matrix", shapeText(tensor.shape)));
    return form == AdapterForm::kMlx ? transposed(tensor, builder_) : tensor;
  }

  void check(PeftModule& module) {
    if (module.key_a.empty() || module.key_b.empty()) {
      const bool no_a = module.key_a.empty();
      const std::string& present = !module.key_b.empty()   ? module.key_b
                                   : !module.key_a.empty() ? module.key_a
                                                           : module.key_magnitude;
      refuse(present, fmt::format("belongs to a module whose {} is missing", no_a ? "lora_A" : "lora_B"));
    }
    module.a = matrix(module.key_a, module.form);
    module.b = matrix(module.key_b, module.form);
    const int64_t rank = config_.rankOf(module.name);
    const bool is_mlx = module.form == AdapterForm::kMlx;
    if (module.a.shape[0] != rank) {
      refuse(
          module.key_a,
          fmt::format("has shape {}, expected {} by the rank in {}", shapeText(weights_.find(module.key_a)->shape),
                      is_mlx ? fmt::format("[inputs, {}]", rank) : fmt::format("[{}, inputs]", rank), config_source_));
    }
    if (module.b.shape[1] != rank) {
      refuse(module.key_b,
             fmt::format("has shape {}, expected {} by the rank in {}", shapeText(weights_.find(module.key_b)->shape),
                         is_mlx ? fmt::format("[{}, outputs]", rank) : fmt::format("[outputs, {}]", rank),
                         config_source_));
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
    const auto& shape = module.magnitude.shape;
    if (shape != std::vector<int64_t>{out} && shape != std::vector<int64_t>{out, 1} &&
        shape != std::vector<int64_t>{1, out}) {
      refuse(module.key_magnitude, fmt::format("has shape {}, expected [{}]", shapeText(shape), out));
    }
  }

  const PeftConfig& config_;
  std::string_view config_source_;
  const TensorFile& weights_;
  AdapterBuilder builder_;  // keeps converted matrices
  std::vector<PeftModule> modules_;
  std::map<std::string, size_t> index_;
};
}  // namespace

std::string PeftModule::peftKey(const std::string& key) const {
  if (form == AdapterForm::kPeft) return key;
  const char* part = key == key_a ? "lora_A.weight" : key == key_b ? "lora_B.weight" : "lora_magnitude_vector";
  return fmt::format("base_model.model.{}.{}", name, part);
}

PeftModules readPeftModules(const fs::path& dir) {
  struct Memory {
    PeftFiles files;
    std::vector<std::shared_ptr<const void>> converted;
  };
  const auto memory = std::make_shared<Memory>(Memory{
      std::get<PeftFiles>(readAdapterFiles(AdapterLocation::of(dir), AdapterFileLimits::ofAnyModel()).files), {}});
  const PeftFiles& files = memory->files;
  const PeftConfig config = PeftConfig::parse(files.config, files.config_source);
  OrderedJson json = orderedConfig(files, config);
  std::vector<PeftModule> modules = ModuleReader(config, files.config_source, files.weights).read(memory->converted);
  return {files.weights.source(),
          files.config_source,
          std::move(json),
          config.use_dora,
          config.magnitude_is_normalised,
          memory,
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
  memory->files =
      std::get<NemoFiles>(readAdapterFiles(AdapterLocation::of(path), AdapterFileLimits::ofAnyModel()).files);
  const NemoFiles& files = memory->files;
  memory->modules = readNemoModules(files, NemoShape::of(files.config, files.config_source));
  PeftModules read{.source = files.source};
  for (const NemoModule& module : memory->modules.modules) {
    read.modules.push_back({.name = fmt::format("layers.{}.{}", module.layer, nameInLayer(module.module_id)),
                            .key_a = module.name + ".linear_in.weight",
                            .key_b = module.name + ".linear_out.weight",
                            .a = module.a,
                            .b = module.b,
                            .scale = memory->modules.scale});
  }
  read.memory = memory;
  return read;
}

}  // namespace chorus
