// Finds the group of a row, for ops that take groups of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/row_range.h"

namespace chorus {

// Returns the group that contains `row`, or null if there is none. The ranges of a group are ascending, and groups are
// disjoint.
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
