// RMS norm on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/rms_norm/rms_norm.h"

namespace chorus {

void rmsNormCpu(const RmsNormArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
