// The part of an embedding that moves rows without arithmetic: what every backend of the CPU shares.
#pragma once

#include "kernels/embedding/embedding.h"

namespace chorus {

// The token's row of the table widened into out [cols]; zeros for a token that is none of the table's.
void widenRow(const EmbeddingTable& table, int32_t token, int64_t cols, float* out);

// Rows [begin, end) of the result before their groups' parts.
void lookUpRows(const EmbeddingArgs& args, int64_t begin, int64_t end);

}  // namespace chorus
