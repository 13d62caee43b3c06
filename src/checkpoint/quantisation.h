// Weight-only quantisation of a checkpoint: which rows it takes, and the names of their scales (TensorRT-LLM's W8A16
// and W4A16, in the plain layout that DESIGN.md and docs/quantization.md have).
//   integers   NAME.weight: int8 [out, in], or for int4 [out / 2, in], the even row of a pair in the low half of a byte
//   scales     NAME.per_channel_scale [out], or with groups NAME.weights_scaling_factor [out, in / group]
//   weight     integer * scale
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"

namespace chorus {

inline constexpr std::string_view kPerChannelScale = "per_channel_scale";
inline constexpr std::string_view kGroupScale = "weights_scaling_factor";
inline constexpr std::string_view kPlainLayout = "plain";

struct WeightQuantisation {
  WeightFormat format;
  std::vector<std::string> excluded;  // fnmatch patterns over module names: a tensor's without ".weight"

  // Whether the row of this layer (global id; -1 outside layers) is quantised.
  bool takes(const WeightRow& row, int32_t layer) const;
};

// How the config's weights are quantised; nullopt: they are not. Throws as checkQuantisation.
std::optional<WeightQuantisation> weightQuantisation(const ModelConfig& config);

// Throws Error(kUnsupported), naming source and key, when the config asks for an algorithm, layout or group size that
// this version does not have.
void checkQuantisation(const ModelConfig& config, std::string_view source);

// What quantising to `bits` (8 or 4) with this group size (0: none) writes into a config. Without head, the output head
// stays as it is.
void setQuantisation(ModelConfig& config, int32_t bits, int32_t group_size, bool head);

// The name of the scales of a quantised weight.
std::string scaleName(std::string_view weight, const WeightFormat& format);

}  // namespace chorus
