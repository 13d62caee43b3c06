// The CPU's attention: an item is some rows of a sequence, all query heads of one KV head, and a stretch of positions.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/cpu/workspace.h"

namespace chorus {

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlan& plan);

}  // namespace chorus
