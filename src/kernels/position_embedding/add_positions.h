// The addition that all variants share.
#pragma once

#include "kernels/position_embedding/position_embedding.h"

namespace chorus {

// Adds the positions of rows [begin, end) of the step.
void addPositions(const PositionEmbeddingArgs& args, const StepBatch& batch, int64_t begin, int64_t end);

}  // namespace chorus
