// Token embedding and row gather.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_groups.h"
#include "kernels/tensor.h"

namespace chorus {

// Rows of tokens [first_token, first_token + vocab), row-major, with a 64-byte aligned start. The struct that holds the
// table defines the length of a row. All other tokens have a row of zeros, because they belong to another vocabulary
// shard.
struct EmbeddingTable {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t vocab = 0;
  int64_t first_token = 0;
};

// One LoRA term of an embedding:
//   out = magnitude * (out + scale * B a[token])
// magnitude is DoRA's m / ||W + scale A B||, with the norm taken over the vocabulary (PEFT's DoraEmbeddingLayer); null
// means 1.
struct EmbeddingPart {
  EmbeddingTable a;  // [vocab, rank]; in a vocabulary shard, the tokens of the base's shard
  PackedWeight b;    // [cols, rank], of a float format
  float scale = 1.0f;
  const float* magnitude = nullptr;  // [cols]
};

// The rows of one adapter. Each is computed in this order:
//   - Its row of `table` or, if `table` has no data, of the base's table. If its token is in replaced_tokens, its row
//     of replaced_rows instead.
//   - Plus the LoRA terms in `parts`, in order.
// Groups of one call are disjoint. `ranges` and `parts` are in host memory, all other pointers are to device memory.
struct EmbeddingGroup {
  std::span<const RowRange> ranges;  // ascending
  EmbeddingTable table;
  const int32_t* replaced_tokens = nullptr;  // [replaced], ascending; in a vocabulary shard, only those of the shard
  const float* replaced_rows = nullptr;      // [replaced, cols]
  int64_t replaced = 0;
  std::span<const EmbeddingPart> parts;
};

// out[i] = table[tokens[i]], widened to float32; rows of a group as EmbeddingGroup says. A row's result depends only on
// its token, the table and its group.
struct EmbeddingArgs {
  EmbeddingTable table;
  std::span<const int32_t> tokens;
  Matrix out;
  std::span<const EmbeddingGroup> groups;
};

// out[i] = x[rows[i]].
struct GatherRowsArgs {
  ConstMatrix x;
  std::span<const int32_t> rows;
  Matrix out;
};

namespace reference {
void embedding(const EmbeddingArgs& args);
void gatherRows(const GatherRowsArgs& args);
}  // namespace reference

}  // namespace chorus
