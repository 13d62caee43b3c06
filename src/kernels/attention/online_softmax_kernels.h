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
  float sums[16];  // sums[i]: of the weights of the runs' slots i, i + 16, i + 32, ...
  float max;       // largest score so far, in units of ln 2
};

// One online-softmax update of some queries with one run of positions.
struct SoftmaxUpdate {
  float* scores = nullptr;  // [count][kAttentionRun], products of query and key; replaced by weights 2^(score - max)
  int count = 0;
  // [count], slots that each query attends to, relative to the run: begin may be below 0, end beyond kAttentionRun. The
  // weights of the other slots are 0.
  const int64_t* begin = nullptr;
  const int64_t* end = nullptr;
  // The factors of AttentionScore. Scores are multiplied by log2(e), because the weights are powers of 2.
  float scale = 1.0f;
  float softcap = 0;
  const float* slopes = nullptr;  // [count], the slope of each query's head; null: zeros
  float* states = nullptr;        // the SoftmaxStates, `stride` floats apart; updated to the new maximum
  int64_t stride = 0;
  float* factors = nullptr;  // [count], output; the caller must multiply each query's `out` by its factor
};

struct OnlineSoftmaxKernels {
  // Resets the online-softmax state and clears out.
  void (*start)(SoftmaxState& state, float* out, int64_t head_size);
  void (*update)(const SoftmaxUpdate& args);
  // Merges a later KV split into the state and out of the splits before it, which may be empty, as after start(). The
  // later one must have a position that the query attends to: two empty states would give NaN.
  void (*merge)(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size);
  // result = out / (sum of the weights).
  void (*finish)(const SoftmaxState& state, const float* out, int64_t head_size, float* result);
  // Whether any of `count` 32-bit words has all bits of the mask.
  bool (*any)(const std::byte* words, int64_t count, uint32_t mask);
};
IsaTable<const OnlineSoftmaxKernels*> onlineSoftmaxKernels();

}  // namespace chorus
