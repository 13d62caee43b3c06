#include "checkpoint/quantisation.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

// The modules that TensorRT-LLM does not quantise when a config has no exclude_modules.
std::vector<std::string> usuallyExcluded() {
  return {"*lm_head", "*router", "*vocab_embedding", "*position_embedding", "*block_embedding", "*shared_expert_gate"};
}

struct Algorithm {
  std::string_view name;
  DType weights;
  InputFormat activations;
};
constexpr Algorithm kAlgorithms[] = {
    {"W8A16", DType::kInt8, InputFormat::kInt16},
    {"W4A16", DType::kInt4, InputFormat::kInt16},
    {"W8A8", DType::kInt8, InputFormat::kInt8},
    {"W4A8", DType::kInt4, InputFormat::kInt8},
    {"W8A8_PER_TOKEN", DType::kInt8, InputFormat::kInt8PerToken},
};

// Returns null for the name of an algorithm that is not supported.
const Algorithm* findAlgorithm(std::string_view name) {
  const auto* found = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  return found == std::end(kAlgorithms) ? nullptr : found;
}
const Algorithm* findAlgorithm(DType weights, InputFormat activations) {
  const auto* found = std::ranges::find_if(kAlgorithms, [&](const Algorithm& algorithm) {
    return algorithm.weights == weights && algorithm.activations == activations;
  });
  return found == std::end(kAlgorithms) ? nullptr : found;
}

bool isGroupSize(int32_t size) { return size == 0 || size == 32 || size == 64 || size == 128; }
}  // namespace

QuantScheme WeightQuantisation::schemeOf(const WeightRow& row, int32_t layer, DType dtype) const {
  const bool quantised = row.quantisable && !matchesAny(excluded, std::string(moduleOf(layerName(row.name, layer))));
  return {quantised ? format : WeightFormat(dtype)};
}

void checkQuantisation(const ModelConfig& config, std::string_view source) {
  const QuantConfig& quant = config.quantization;
  if (!quant.quant_algo) return;
  const Algorithm* algorithm = findAlgorithm(*quant.quant_algo);
  if (algorithm == nullptr) {
    fail(ErrorCode::kUnsupported,
         "{}: quantization.quant_algo '{}' is not supported; W8A16, W4A16, W8A8, W4A8 and W8A8_PER_TOKEN are. Convert "
         "the unquantised model, with --use_weight_only to quantise it",
         source, *quant.quant_algo);
  }
  if (config.weight_layout != kPlainLayout) {
    fail(ErrorCode::kUnsupported,
         "{}: quantised weights with weight_layout {} cannot be read, only 'plain' ones; convert the model again with "
         "chorus",
         source, config.weight_layout ? "'" + *config.weight_layout + "'" : "missing (a GPU's own order)");
  }
  if (quant.has_zero_point || quant.pre_quant_scale) {
    fail(ErrorCode::kUnsupported, "{}: quantization.{} is not supported with {}", source,
         quant.has_zero_point ? "has_zero_point" : "pre_quant_scale", *quant.quant_algo);
  }
  if (algorithm->activations != InputFormat::kInt16 && config.dtype == DType::kFloat32) {
    fail(ErrorCode::kUnsupported,
         "{}: {} is not supported in a float32 model, which never rounds activations; --dtype bfloat16 or float16 is "
         "needed",
         source, algorithm->name);
  }
  // Checks only the range: with one scale per output, the group size has no meaning, and CheckpointReader sets it to 0.
  if (quant.group_size < -1 || quant.group_size > 1 << 20) {
    fail(ErrorCode::kInvalidArgument, "{}: quantization.group_size {} is out of range", source, quant.group_size);
  }
}

std::optional<WeightQuantisation> weightQuantisation(const ModelConfig& config) {
  const QuantConfig& quant = config.quantization;
  if (!quant.quant_algo) return std::nullopt;
  checkQuantisation(config, "config.json");
  const int32_t group = quant.group_size < 0 ? 0 : quant.group_size;
  if (!isGroupSize(group)) {
    fail(ErrorCode::kUnsupported, "config.json: quantization.group_size {} is not supported; 32, 64 and 128 are",
         group);
  }
  const Algorithm& algorithm = *findAlgorithm(*quant.quant_algo);
  if (algorithm.activations == InputFormat::kInt8PerToken && group != 0) {
    fail(
        ErrorCode::kUnsupported,
        "{} (--activations {}) needs weights with one scale for each output, but these have groups of {}; --group_size "
        "0 is needed",
        algorithm.name, inputFormatName(algorithm.activations), group);
  }
  WeightQuantisation quantisation;
  quantisation.format = {algorithm.weights, group, config.dtype, algorithm.activations};
  quantisation.excluded = quant.exclude_modules.value_or(usuallyExcluded());
  return quantisation;
}

void setQuantisation(ModelConfig& config, int32_t bits, int32_t group_size, bool head) {
  QuantConfig& quant = config.quantization;
  quant.quant_algo = findAlgorithm(bits == 8 ? DType::kInt8 : DType::kInt4, InputFormat::kInt16)->name;
  quant.group_size = group_size;
  if (head) {
    quant.exclude_modules = usuallyExcluded();
    std::erase(*quant.exclude_modules, "*lm_head");
  }
  config.weight_layout = kPlainLayout;
}

void setActivations(ModelConfig& config, InputFormat activations, std::string_view source) {
  std::optional<std::string>& name = config.quantization.quant_algo;
  if (!name) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the model is not quantised; convert it with --use_weight_only, or serve it with --quantize", source);
  }
  if (const Algorithm* given = findAlgorithm(*name)) {
    const Algorithm* algorithm = findAlgorithm(given->weights, activations);
    if (algorithm == nullptr) {
      fail(ErrorCode::kUnsupported, "{} {}: not supported with {} weights", source, inputFormatName(activations),
           dtypeName(given->weights));
    }
    name = algorithm->name;
  }
  checkQuantisation(config, source);
  weightQuantisation(config);
}

}  // namespace chorus
