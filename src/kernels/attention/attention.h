// Causal attention over the paged KV cache, also with a window, a soft cap and ALiBi. Context and generation rows use
// the same arithmetic.
#pragma once

#include <cstdint>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// The positions that a row attends to. The row at position p attends to [firstPosition(p), p].
struct AttentionMask {
  int64_t window = 0;  // maximum number of positions, with the row's own; 0: no limit

  int64_t firstPosition(int64_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// score = capped(scale * q . k) + slope of the query head * (position of the key - position of the row)
struct AttentionScore {
  float scale = 1.0f;
  float softcap = 0;              // c: capped(x) = c * tanh(x / c); 0: capped(x) = x
  const float* slopes = nullptr;  // [num_heads], device memory; null: zeros. ALiBi's slopes are positive
};

// The row at position p of a sequence attends to positions of that sequence as the mask says; its own key and value are
// already in the cache.
//   out[head] = softmax(scores) v,   KV head = head / (num_heads / num_kv_heads)
//   - q: [rows, num_heads * head_size], a view into qkv (its stride is the width of qkv).
//   - out: [rows, num_heads * head_size].
//   - A row's result is bit-identical however its sequence is chunked and whatever else is in the step. Positions are
//     divided into KV splits of kAttentionSplit, aligned to 0. The softmax of a KV split is computed in float32
//     relative to its largest score, and the KV splits are merged in ascending order. KV splits without any position
//     that the row attends to change nothing.
//   - Blocks before the one of firstPosition(p) are not read for that row.
struct AttentionArgs {
  ConstMatrix q;
  int32_t num_heads = 0;
  AttentionMask mask;
  AttentionScore score;
  KvLayer kv;
  Matrix out;
};
inline constexpr int32_t kAttentionRun = kKvRun;  // positions whose keys and values are read at a time
inline constexpr int32_t kAttentionSplit = 512;   // positions of a KV split

namespace reference {
void attention(const AttentionArgs& args, const StepBatch& batch);
}

}  // namespace chorus
