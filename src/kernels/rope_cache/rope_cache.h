// After the qkv product: add its bias, rotate q and k, and write k and v into the cache.
#pragma once

#include <cstdint>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// cos and sin by position: [positions, rotary_dim / 2] float32 each, device memory.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int32_t rotary_dim = 0;    // even; the first rotary_dim dimensions of a head are rotated, the rest pass
  bool interleaved = false;  // false: halves are rotated (GPT-NeoX); true: adjacent pairs (GPT-J)
};

// qkv: [rows, (num_heads + 2 num_kv_heads) * head_size] float32, rows of q heads, then k, then v; q is
// rotated in place, k and v go to the cache rounded to its dtype. bias: [that many] float32 or null.
// Positions come from the step's sequences.
struct RopeCacheArgs {
  Matrix qkv;
  const float* bias = nullptr;
  int32_t num_heads = 0;
  RopeTable rope;
  KvLayer kv;
};

namespace reference {
void ropeCache(const RopeCacheArgs& args, const StepBatch& batch);
}

}  // namespace chorus
