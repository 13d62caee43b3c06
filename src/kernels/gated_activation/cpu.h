// The CPU's gated activation: rows, or slices of columns where rows are few, over threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/gated_activation/gated_activation.h"

namespace chorus {

void gatedActivationCpu(const GatedActivationArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
