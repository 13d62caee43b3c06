// The parts of attention that are not products, one set of functions for each instruction set.
#pragma once

#include <cstddef>
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
  // scores, `count` rows of kAttentionRun side by side, become weights 2^(score * scale - max), 0 from slot valid[row]
  // on (which may be <= 0); states, `stride` floats apart, move to the new maximum, and out is to follow by factors.
  // scale: units of ln 2.
  void (*fold)(float* scores, int count, const int64_t* valid, float scale, float* states, int64_t stride,
               float* factors);
  // What a later stretch adds to those before it.
  void (*merge)(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size);
  // result = out / sum.
  void (*finish)(const SoftmaxState& state, const float* out, int64_t head_size, float* result);
  // Whether any of `count` words has all bits of the mask.
  bool (*any)(const std::byte* words, int64_t count, uint32_t mask);
};
IsaTable<const FoldKernels*> foldKernels();

}  // namespace chorus
