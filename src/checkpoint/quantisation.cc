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
  int32_t activation_bits;
};
constexpr Algorithm kAlgorithms[] = {
    {"W8A16", DType::kInt8, 16}, {"W4A16", DType::kInt4, 16}, {"W8A8", DType::kInt8, 8}, {"W4A8", DType::kInt4, 8}};

// Returns null for the name of an algorithm that is not supported.
const Algorithm* findAlgorithm(std::string_view name) {
  const auto* found = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  return found == std::end(kAlgorithms) ? nullptr : found;
}
std::string_view nameOf(DType weights, int32_t activation_bits) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.weights == weights && algorithm.activation_bits == activation_bits) return algorithm.name;
  }
  fail(ErrorCode::kInternal, "no algorithm has weights of type {} and {} bits of activations", dtypeName(weights),
       activation_bits);
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
         "{}: quantization.quant_algo '{}' is not supported; W8A16, W4A16, W8A8 and W4A8 are. Convert the unquantised "
         "model, with --use_weight_only to quantise it",
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
  if (algorithm->activation_bits < 16 && config.dtype == DType::kFloat32) {
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
  WeightQuantisation quantisation;
  const Algorithm& algorithm = *findAlgorithm(*quant.quant_algo);
  quantisation.format = {algorithm.weights, group, config.dtype, algorithm.activation_bits};
  quantisation.excluded = quant.exclude_modules.value_or(usuallyExcluded());
  return quantisation;
}

void setQuantisation(ModelConfig& config, int32_t bits, int32_t group_size, bool head) {
  QuantConfig& quant = config.quantization;
  quant.quant_algo = nameOf(bits == 8 ? DType::kInt8 : DType::kInt4, 16);
  quant.group_size = group_size;
  if (head) {
    quant.exclude_modules = usuallyExcluded();
    std::erase(*quant.exclude_modules, "*lm_head");
  }
  config.weight_layout = kPlainLayout;
}

void setActivationBits(ModelConfig& config, int32_t bits, std::string_view source) {
  std::optional<std::string>& name = config.quantization.quant_algo;
  if (!name) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the model is not quantised; convert it with --use_weight_only, or serve it with --quantize", source);
  }
  const Algorithm* algorithm = findAlgorithm(*name);
  if (algorithm != nullptr) name = nameOf(algorithm->weights, bits);
  checkQuantisation(config, source);
}

}  // namespace chorus
