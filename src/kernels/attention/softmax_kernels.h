// The softmax of attention: all its arithmetic except the products, with one set of functions for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa_table.h"

namespace chorus {

// The softmax of one query over the positions of a KV split, or of several splits. The caller keeps with it the query's
// `out`: sum(2^(score - max) * v), which must be divided by the sum of the lanes of `sums`.
struct alignas(64) SoftmaxState {
  float sums[16];  // sums[i]: of the weights of the slots i, i + 16, i + 32, ... of every run
  float max;       // largest score, in units of ln 2; -infinity if the query attends to nothing
};

// Scores of some queries for adjacent runs of one KV split, which become softmax weights.
struct SoftmaxRows {
  // [runs][count][kAttentionRun], products of query and key; replaced by weights 2^(score - max). From run to run there
  // are run_stride floats.
  float* scores = nullptr;
  int64_t runs = 0;
  int64_t run_stride = 0;
  int count = 0;
  // [count], slots that each query attends to, relative to the first run: begin may be below 0, end beyond the last
  // run. The scores of other slots may hold anything, and their weights are 0.
  const int64_t* begin = nullptr;
  const int64_t* end = nullptr;
  // The factors of AttentionScore. Scores are multiplied by log2(e), because the weights are powers of 2.
  float scale = 1.0f;
  float softcap = 0;
  const float* slopes = nullptr;  // [count], the slope of each query's head; null: zeros
  float* states = nullptr;        // the SoftmaxStates, `stride` floats apart; overwritten
  int64_t stride = 0;
};

struct SoftmaxKernels {
  // Sets the state and `out` of a query that attends to nothing.
  void (*clear)(SoftmaxState& state, float* out, int64_t head_size);
  // Replaces scores by weights and sets the states. The caller must then set each query's `out`.
  void (*weigh)(const SoftmaxRows& rows);
  // Merges a later KV split into the state and out of the splits before it, which may be empty, as after clear(). The
  // later one must have a position that the query attends to: two empty states would give NaN.
  void (*merge)(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size);
  // result = out / (sum of the weights).
  void (*finish)(const SoftmaxState& state, const float* out, int64_t head_size, float* result);
  // Whether any of `count` 32-bit words has all bits of the mask.
  bool (*any)(const std::byte* words, int64_t count, uint32_t mask);
};
IsaTable<const SoftmaxKernels*> softmaxKernels();

}  // namespace chorus
