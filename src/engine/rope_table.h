// Rotary position tables, computed as transformers computes them.
#pragma once

#include <vector>

#include "checkpoint/config.h"

namespace chorus {

// cos and sin of position * inverse frequency, each [positions, rotary_dim / 2]. Computed in float32 throughout,
// because models were trained with the rounding of these angles (transformers' LlamaRotaryEmbedding and
// modeling_rope_utils).
struct HostRopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
};
HostRopeTable makeRopeTable(const ModelConfig& config, int64_t positions);

}  // namespace chorus
