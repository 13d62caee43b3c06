// Multiplication by a constant on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/scale/scale.h"

namespace chorus {

void scaleCpu(const ScaleArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
