// The copying half of an embedding, without LoRA terms, and the row gather; shared by the CPU and the reference
// backend.
#pragma once

#include "kernels/embedding/embedding.h"

namespace chorus {

// Writes the token's row of the table, widened, to out [cols]; zeros if the table does not have the token.
void widenRow(const EmbeddingTable& table, int32_t token, int64_t cols, float* out);

// Writes rows [begin, end) of the result, without the LoRA terms of their groups.
void lookUpRows(const EmbeddingArgs& args, const StepBatch& batch, int64_t begin, int64_t end);

// Writes rows [begin, end) of args.out.
void copyRows(const GatherRowsArgs& args, const StepBatch& batch, int64_t begin, int64_t end);

}  // namespace chorus
