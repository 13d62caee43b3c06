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
// Computes the tables of a spec in pieces, because whole ones may be large.
class RopeTableMaker {
 public:
  // positions: of the whole tables. With longrope, it decides which of the two lists of factors applies.
  RopeTableMaker(const RopeSpec& spec, int64_t positions);

  // The size of a row; 0 for a spec without rotation.
  int64_t pairs() const { return std::ssize(frequencies_); }
  // Makes `rows` the rows of the positions [begin, end). Its memory is used again.
  void make(int64_t begin, int64_t end, HostRopeTable& rows) const;

 private:
  std::vector<float> frequencies_;  // inverse ones
  float factor_;
};
// Bytes of both tables in device memory.
int64_t ropeTableBytes(const RopeSpec& spec, int64_t positions);
// The factors of queries at the positions [begin, end); empty if queries are not multiplied.
std::vector<float> makeQueryScales(const QueryScaling& scaling, int64_t begin, int64_t end);
// The different specs among those of the layers, in order of their first layer.
std::vector<RopeSpec> ropeSpecs(const ModelSpec& spec);

}  // namespace chorus
