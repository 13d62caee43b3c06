// Causal attention over the paged KV cache. Context and generation rows use the same arithmetic.
#pragma once

#include <cstdint>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// The row at position p of a sequence attends to positions [0, p] of that sequence; its own key and value are already
// in the cache.
//   out[head] = softmax(q . k * scale) v,   KV head = head / (num_heads / num_kv_heads)
//   - q: [rows, num_heads * head_size], a view into qkv (its stride is the width of qkv).
//   - out: [rows, num_heads * head_size].
//   - A row's result is bit-identical however its sequence is chunked and whatever else is in the step. Runs of
//     kAttentionRun positions, aligned to 0, are taken in ascending order, each with one online-softmax update in
//     float32. Every KV split of kAttentionSplit positions starts from an empty state, and the KV splits are merged in
//     ascending order.
struct AttentionArgs {
  ConstMatrix q;
  int32_t num_heads = 0;
  float scale = 1.0f;
  KvLayer kv;
  Matrix out;
};
inline constexpr int32_t kAttentionRun = kKvRun;
inline constexpr int32_t kAttentionSplit = 512;

namespace reference {
void attention(const AttentionArgs& args, const StepBatch& batch);
}

}  // namespace chorus
