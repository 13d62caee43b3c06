// The op after the qkv product: adds its bias, applies RoPE to q and k, and writes k and v to the KV cache.
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
  int32_t rotary_dim = 0;    // even; the first rotary_dim dimensions of a head are rotated, the rest are unchanged
  bool interleaved = false;  // false: halves are rotated (GPT-NeoX); true: adjacent pairs (GPT-J)
};

// qkv += bias; then q and k are rotated in place, and k and v are written to the cache, rounded to its dtype.
//   - qkv: [rows, (num_heads + 2 * num_kv_heads) * head_size] float32; a row holds its q heads, then k, then v.
//   - bias: [(num_heads + 2 * num_kv_heads) * head_size] float32, or null.
//   - Positions are those of the step's sequences.
struct KvWriteArgs {
  Matrix qkv;
  const float* bias = nullptr;
  int32_t num_heads = 0;
  RopeTable rope;
  KvLayer kv;
};

namespace reference {
void kvWrite(const KvWriteArgs& args, const StepBatch& batch);
}

}  // namespace chorus
