// Attention on the CPU. An item is some rows of a sequence, all query heads of one KV head, and a range of KV splits.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/cpu/workspace.h"

namespace chorus {

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlans& plans);

}  // namespace chorus
