// Rows with a norm of their own, for the ops that normalise.
#pragma once

#include <span>

#include "kernels/row_groups.h"

namespace chorus {

// Groups of one call are disjoint. Without a weight or a bias, the rows use the one of the call.
struct NormGroup {
  std::span<const RowRange> ranges;  // ascending
  const float* weight = nullptr;     // [cols]
  const float* bias = nullptr;       // [cols]
};

// The norm weight and bias of one row: its group's, or else the call's.
struct RowNorm {
  const float* weight = nullptr;
  const float* bias = nullptr;
};
inline RowNorm normOfRow(std::span<const NormGroup> groups, int64_t row, const RowNorm& base) {
  const NormGroup* group = groupOf(groups, row);
  if (group == nullptr) return base;
  return {group->weight != nullptr ? group->weight : base.weight, group->bias != nullptr ? group->bias : base.bias};
}

}  // namespace chorus
