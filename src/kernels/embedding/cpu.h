// Token embedding and row gather on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/embedding/embedding.h"

namespace chorus {

void embeddingCpu(const EmbeddingArgs& args, const StepBatch& batch, CpuWorkspace& workspace);
void gatherRowsCpu(const GatherRowsArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
