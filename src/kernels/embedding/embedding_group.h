// Token tables, and rows of a step whose tokens an adapter embeds in its own way.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_range.h"
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

}  // namespace chorus
