// Learned position embeddings on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/position_embedding/position_embedding.h"

namespace chorus {

void positionEmbeddingCpu(const PositionEmbeddingArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
