// Token embedding and row gather.
#pragma once

#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// out[i] = table[token i of the step], widened to float32; rows of a group as EmbeddingGroup says. A row's result
// depends only on its token, the table and its group.
struct EmbeddingArgs {
  EmbeddingTable table;
  Matrix out;
  GroupList<EmbeddingGroup> groups;
};

enum class RowsToGather { kLogits, kAll };

// Copies rows: those of x that need logits, in order (kLogits), or all of them (kAll).
struct GatherRowsArgs {
  ConstMatrix x;
  RowsToGather rows = RowsToGather::kLogits;
  Matrix out;
};

namespace reference {
void embedding(const EmbeddingArgs& args, const StepBatch& batch);
void gatherRows(const GatherRowsArgs& args, const StepBatch& batch);
}  // namespace reference

}  // namespace chorus
