// Token embedding and row gather.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_groups.h"
#include "kernels/tensor.h"

namespace chorus {

// Rows of tokens [first_token, first_token + vocab), each of as many values as its user says; row-major, 64-byte
// aligned start. All other tokens have a row of zeros (they are another vocabulary shard's).
struct EmbeddingTable {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t vocab = 0;
  int64_t first_token = 0;
};

// An adapter's low-rank addition: out = magnitude * (out + scale * B a[token]), where magnitude is DoRA's
// m / ||W + scale A B|| over the vocabulary (PEFT's DoraEmbeddingLayer), null: 1.
struct EmbeddingPart {
  EmbeddingTable a;  // [vocab, rank]; a shard has the tokens that the base's has
  PackedWeight b;    // [cols, rank], of a float format
  float scale = 1.0f;
  const float* magnitude = nullptr;  // [cols]
};

// Rows of an adapter. In turn: the row of its own table, where that has data, or of the base's; for replaced_tokens the
// replacement; then the parts. Groups of one call are disjoint. What it points to but ranges and parts is device
// memory.
struct EmbeddingGroup {
  std::span<const RowRange> ranges;  // ascending
  EmbeddingTable table;
  const int32_t* replaced_tokens = nullptr;  // [replaced], ascending; of a vocabulary shard, its own
  const float* replaced_rows = nullptr;      // [replaced, cols]
  int64_t replaced = 0;
  std::span<const EmbeddingPart> parts;
};

// out[i] = table[tokens[i]] widened to float32; rows of a group as it says. Every row's result depends on its token,
// the table and its group alone.
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
