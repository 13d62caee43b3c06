// Token embedding and row gather.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace chorus {

// out[i] = table[tokens[i]] widened to float32. table: row-major [vocab, cols] of `dtype`, 64-byte aligned
// start. Tokens outside [first_token, first_token + vocab) give a row of zeros (a vocabulary shard).
struct EmbeddingArgs {
  const void* table = nullptr;
  DType dtype = DType::kFloat32;
  int64_t vocab = 0;
  int64_t first_token = 0;
  std::span<const int32_t> tokens;
  Matrix out;
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
