// Token embedding and row gather on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/embedding/embedding.h"

namespace chorus {

void embeddingCpu(const EmbeddingArgs& args, CpuWorkspace& workspace);
void gatherRowsCpu(const GatherRowsArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
