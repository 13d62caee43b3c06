// Linear on the CPU: panels are divided among all threads and rows into tiles; LoRA terms are added in the same pass.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/plan.h"

namespace chorus {

void linearCpu(const LinearArgs& args, const StepBatch& batch, CpuWorkspace& workspace, LinearPlan& plan);

}  // namespace chorus
