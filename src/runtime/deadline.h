// Time-outs that callers give, as points in time.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace chorus {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // none: never

// Those below 0 have passed. Longer than a year is as good as none, and could not always be added to a time.
inline Deadline deadlineAfter(const std::optional<std::chrono::milliseconds>& timeout) {
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  if (!timeout || *timeout > kForever) return std::nullopt;
  return std::chrono::steady_clock::now() + std::max(*timeout, std::chrono::milliseconds(0));
}

}  // namespace chorus
