// Finds the group of a row: ops over groups of rows take it once a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/step_batch.h"

namespace chorus {

// The group whose ascending ranges hold the row, or null. Groups are disjoint.
template <typename Group>
const Group* groupOf(std::span<const Group> groups, int64_t row) {
  for (const Group& group : groups) {
    const auto after = std::upper_bound(group.ranges.begin(), group.ranges.end(), row,
                                        [](int64_t r, const RowRange& range) { return r < range.end; });
    if (after != group.ranges.end() && after->begin <= row) return &group;
  }
  return nullptr;
}

}  // namespace chorus
