// Quantisation of a checkpoint's weights: which weights are quantised, and the names of their scales. Algorithms are
// TensorRT-LLM's W8A16 and W4A16, in the plain layout (docs/quantization.md). W8A8, W4A8 and W8A8_PER_TOKEN have the
// same tensors; an engine of them also quantises activations, to int8.
//   integers   NAME.weight: int8 [out, in]; int4 [out / 2, in] with rows 2 i and 2 i + 1 in the low and high half of
//              the bytes of row i
//   scales     NAME.per_channel_scale [out], or with groups NAME.weights_scaling_factor [out, in / group]
//   weight     integer * scale
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/quant_scheme.h"
#include "checkpoint/weight_table.h"

namespace chorus {

inline constexpr std::string_view kPlainLayout = "plain";

struct WeightQuantisation {
  WeightFormat format;                // of the quantised weights
  std::vector<std::string> excluded;  // fnmatch patterns of module names (tensor names without ".weight")

  // Returns how the weight of this table row is stored. layer: global layer id; -1 for a weight outside the layers.
  // dtype: the type of the weight if it is not quantised.
  QuantScheme schemeOf(const WeightRow& row, int32_t layer, DType dtype) const;
};

// Returns how the config's weights are quantised; nullopt when they are not. Throws the Errors of checkQuantisation,
// and Error(kUnsupported) for a group size that the algorithm does not support.
std::optional<WeightQuantisation> weightQuantisation(const ModelConfig& config);

// Throws Error, naming source and key, when the config's algorithm, layout or other quantisation option is not
// supported (kUnsupported) or its group size is out of range (kInvalidArgument).
void checkQuantisation(const ModelConfig& config, std::string_view source);

// Sets the config fields of a model quantised to `bits` (8 or 4) with this group size (0: one scale per output).
// head: also quantise the output head.
void setQuantisation(ModelConfig& config, int32_t bits, int32_t group_size, bool head);

// Changes the algorithm of a quantised model to the one with the same weights and these activations.
// Throws Error(kInvalidArgument) that begins with `source` if the model is not quantised, and the Errors of
// weightQuantisation; kUnsupported if no algorithm has both.
void setActivations(ModelConfig& config, InputFormat activations, std::string_view source);

}  // namespace chorus
