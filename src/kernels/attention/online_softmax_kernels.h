// The online softmax of attention: all its arithmetic except the products, with one set of functions for each
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_table.h"

namespace chorus {

// Online-softmax state of one query. Its `out` holds sum(2^(score - max) * v), which must be divided by the sum of the
// lanes of `sums`.
struct alignas(64) SoftmaxState {
  float sums[16];  // sums of weights, one per vector lane; the rest is unused
  float max;       // largest score so far, in units of ln 2
};

struct OnlineSoftmaxKernels {
  // Resets the online-softmax state and clears out.
  void (*start)(SoftmaxState& state, float* out, int64_t head_size);
  // One online-softmax update of `count` queries.
  //   - scores: `count` adjacent rows of kAttentionRun scores. They are replaced by weights 2^(score * scale - max),
  //     which are 0 from slot valid[row] on (valid[row] may be <= 0).
  //   - scale: the factor of the scores times log2(e), because the weights are powers of 2.
  //   - states: the SoftmaxStates, `stride` floats apart. They are updated to the new maximum.
  //   - factors: output; the caller must multiply each query's `out` by its factor.
  void (*update)(float* scores, int count, const int64_t* valid, float scale, float* states, int64_t stride,
                 float* factors);
  // Merges a later KV split into the state and out of the splits before it.
  void (*merge)(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size);
  // result = out / (sum of the weights).
  void (*finish)(const SoftmaxState& state, const float* out, int64_t head_size, float* result);
  // Whether any of `count` 32-bit words has all bits of the mask.
  bool (*any)(const std::byte* words, int64_t count, uint32_t mask);
};
IsaTable<const OnlineSoftmaxKernels*> onlineSoftmaxKernels();

}  // namespace chorus
