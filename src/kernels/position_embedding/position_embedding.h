// Learned position embeddings.
#pragma once

#include "kernels/embedding/embedding.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// x[row] += table[position of the row], widened to float32.
//   - x: [rows, cols] float32.
//   - table: row-major [positions, cols]; `vocab` is its number of positions, and first_token is 0. It has a row for
//     each position of the step.
struct PositionEmbeddingArgs {
  EmbeddingTable table;
  Matrix x;
};

namespace reference {
void positionEmbedding(const PositionEmbeddingArgs& args, const StepBatch& batch);
}

}  // namespace chorus
