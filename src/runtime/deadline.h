// Converts callers' timeouts to points in time.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace chorus {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nullopt: none

// A negative timeout has passed already. A timeout of more than a year means no deadline: adding it to the current time
// could overflow.
inline Deadline deadlineAfter(const std::optional<std::chrono::milliseconds>& timeout) {
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  if (!timeout || *timeout > kForever) return std::nullopt;
  return std::chrono::steady_clock::now() + std::max(*timeout, std::chrono::milliseconds(0));
}

}  // namespace chorus
