// The parts of attention that are not products, one set of functions for each instruction set.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa_table.h"

namespace chorus {

// A query's running softmax: its out holds sum(2^(score - max) v), to be divided by the sum of the lanes.
struct alignas(64) SoftmaxState {
  float sums[16];  // as many as a vector has lanes
  float max;       // of scores in units of ln 2
};

struct FoldKernels {
  // Of an empty stretch; out is set to 0.
  void (*start)(SoftmaxState& state, float* out, int64_t head_size);
  // scores[kAttentionRun] become weights 2^(score * scale - max), 0 from slot `valid` on (valid may be <= 0); state and
  // out[head_size] move to the new maximum. scale: units of ln 2.
  void (*fold)(float* scores, int64_t valid, float scale, SoftmaxState& state, float* out, int64_t head_size);
  // What a later stretch adds to those before it.
  void (*merge)(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size);
  // out /= sum.
  void (*finish)(const SoftmaxState& state, float* out, int64_t head_size);
};
IsaTable<const FoldKernels*> foldKernels();

}  // namespace chorus
