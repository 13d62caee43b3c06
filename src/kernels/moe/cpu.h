// The mixture of experts on the CPU: rows are gathered by expert and LoRA terms, and the grouped linear multiplies each
// group by its expert's weight.
#pragma once

#include <vector>

#include "kernels/cpu/workspace.h"
#include "kernels/linear/plan.h"
#include "kernels/moe/moe.h"

namespace chorus {

// The division of one call by experts. A pair is a row and one of its experts. The object is kept between calls only to
// reuse its memory.
struct MoePlan {
  std::vector<int32_t> experts;   // [rows * top_k] of the pairs, by row, in routeRow()'s order
  std::vector<float> weights;     // [rows * top_k], in the same order
  std::vector<int32_t> place;     // [rows * top_k], in the same order: the gathered row of the pair
  std::vector<int32_t> row;       // [rows * top_k]: the row of each gathered row
  std::vector<int32_t> group_of;  // [rows]: index into the call's groups, or -1
  // Gathered rows are ordered by key = expert * (groups + 1) + group + 1, with group -1 for a row that has no terms for
  // the expert. begin[key] is the first gathered row of a key, and begin.back() their number.
  std::vector<int32_t> begin;
  std::vector<RowRange> ranges;    // of the keys that have rows
  std::vector<RowGroup> fc, proj;  // one for each of `ranges`
};

void moeCpu(const MoeArgs& args, const StepBatch& batch, CpuWorkspace& workspace, MoePlan& plan,
            LinearPlan& linear_plan);

}  // namespace chorus
