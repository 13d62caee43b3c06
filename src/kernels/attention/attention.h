// Causal attention over the paged cache, one arithmetic for context and generation.
#pragma once

#include <cstdint>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// Row at position p of a sequence attends to positions [0, p] of it, its own key and value already in the
// cache.
//   out[head] = softmax(q . k * scale) v,   KV head = head / (num_heads / num_kv_heads)
// q: [rows, num_heads * head_size] (a view into qkv, its stride the qkv width),
// out: [rows, num_heads * head_size]. A row's result is bit-identical however its sequence was chunked and whatever
// shares the step: keys are folded in runs of kAttentionRun positions aligned to 0, in order, by online softmax in
// float32; every stretch of kAttentionSplit positions starts anew, and stretches are merged in order.
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
