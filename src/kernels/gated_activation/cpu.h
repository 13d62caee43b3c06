// Gated activation on the CPU; slices of rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/gated_activation/gated_activation.h"

namespace chorus {

void gatedActivationCpu(const GatedActivationArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
