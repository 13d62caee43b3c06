// The op after the qkv product: adds its bias, normalises q and k, applies RoPE to them, multiplies q by a factor of
// its position, and writes k and v to the KV cache.
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

// RMS norms of q and k (rms_norm.h). Rows of a group use the group's weight.
//   - Without row_squares: of each head, with weights of head_size elements.
//   - With row_squares: of all query heads of a row together, and of all key heads. row_squares[2 * row] is the sum of
//     the squares of the row's queries on all ranks, which are query_count numbers; row_squares[2 * row + 1] is that of
//     its keys. It includes the bias. This rank's queries and keys begin at elements query_begin and key_begin of the
//     weights.
struct HeadNorms {
  const float* query = nullptr;  // null: heads are not normalised
  const float* key = nullptr;
  float epsilon = 0;
  GroupList<NormGroup> query_groups;
  GroupList<NormGroup> key_groups;
  const float* row_squares = nullptr;  // [rows, 2], device memory
  int64_t query_count = 0;
  int64_t key_count = 0;
  int64_t query_begin = 0;
  int64_t key_begin = 0;
};

// qkv += bias; then q and k are normalised and rotated in place, and k and v are written to the cache,
// rounded to its dtype.
//   - qkv: [rows, (num_heads + 2 * num_kv_heads) * head_size] float32; a row holds its q heads, then k, then v.
//   - bias: [(num_heads + 2 * num_kv_heads) * head_size] float32, or null.
//   - query_scales: [positions] float32, device memory, or null. After the rotation, q is multiplied by the factor of
//     its position.
//   - Positions are those of the step's sequences.
struct KvWriteArgs {
  Matrix qkv;
  const float* bias = nullptr;
  int32_t num_heads = 0;
  HeadNorms norms;
  RopeTable rope;
  KvLayer kv;
  const float* query_scales = nullptr;
};

namespace reference {
void kvWrite(const KvWriteArgs& args, const StepBatch& batch);
}

}  // namespace chorus
