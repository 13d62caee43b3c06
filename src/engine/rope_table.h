// Rotary position tables, computed as transformers computes them.
#pragma once

#include <vector>

#include "models/model_spec.h"

namespace chorus {

// cos and sin of position * inverse frequency, each [positions, dims / 2], times the scaling's attention_factor.
// Computed in float32 throughout, because models were trained with the rounding of these angles (transformers'
// LlamaRotaryEmbedding and modeling_rope_utils).
struct HostRopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
};
// Empty for a spec without rotation. With longrope, positions decides which of the two lists of factors applies.
HostRopeTable makeRopeTable(const RopeSpec& spec, int64_t positions);
// Bytes of both tables in device memory.
int64_t ropeTableBytes(const RopeSpec& spec, int64_t positions);
// The factors of queries, [positions]; empty if queries are not multiplied.
std::vector<float> makeQueryScales(const QueryScaling& scaling, int64_t positions);
// The different specs among those of the layers, in order of their first layer.
std::vector<RopeSpec> ropeSpecs(const ModelSpec& spec);

}  // namespace chorus
