// Overflow-safe size arithmetic for sizes that come from untrusted bytes. Throws Error(kCorrupt) on overflow.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"

namespace chorus {

// what names the thing being sized, for the error line.
inline uint64_t checkedMul(uint64_t a, uint64_t b, const char* what) {
  uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) fail(ErrorCode::kCorrupt, "{}: size overflows", what);
  return out;
}

inline uint64_t checkedAdd(uint64_t a, uint64_t b, const char* what) {
  uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) fail(ErrorCode::kCorrupt, "{}: size overflows", what);
  return out;
}

// Product of a shape's extents. Throws Error(kCorrupt) when an extent is negative.
inline uint64_t checkedElementCount(std::span<const int64_t> shape, const char* what) {
  uint64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) fail(ErrorCode::kCorrupt, "{}: negative extent {}", what, extent);
    count = checkedMul(count, static_cast<uint64_t>(extent), what);
  }
  return count;
}

}  // namespace chorus
