// Ranges of the rows of a step. A row is one token.
#pragma once

#include <algorithm>
#include <cstdint>

namespace chorus {

struct RowRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// The part of `range` in the `count` rows from `first` on, relative to `first`. Its begin equals its end if there is no
// such part.
inline RowRange rangeWithin(RowRange range, int32_t first, int64_t count) {
  const auto rows = static_cast<int32_t>(count);
  return {std::clamp(range.begin - first, 0, rows), std::clamp(range.end - first, 0, rows)};
}

}  // namespace chorus
