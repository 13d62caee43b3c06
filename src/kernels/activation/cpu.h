// Activation on the CPU; slices of rows are divided among threads.
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/cpu/workspace.h"

namespace chorus {

void activationCpu(const ActivationArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
