// The CPU's linear: panels over all threads, rows in tiles, adapter parts in the same pass.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/plan.h"

namespace chorus {

void linearCpu(const LinearArgs& args, CpuWorkspace& workspace, LinearPlan& plan);

}  // namespace chorus
