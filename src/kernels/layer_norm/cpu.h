// Layer norm on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/layer_norm/layer_norm.h"

namespace chorus {

void layerNormCpu(const LayerNormArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
