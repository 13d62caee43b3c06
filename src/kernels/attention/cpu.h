// The CPU's attention: one item is a block of a sequence's rows and all query heads of one KV head.
#pragma once

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/cpu/workspace.h"

namespace chorus {

struct AttentionItem {
  int32_t sequence = 0;
  int32_t row_begin = 0;  // within the sequence
  int32_t row_end = 0;
};

// The items of a step but for the KV head, longest first, kept between calls for the layers that follow.
struct AttentionPlan {
  int32_t rows_per_item = 0;  // 0: not made yet for this step
  std::vector<AttentionItem> items;
};

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlan& plan);

}  // namespace chorus
