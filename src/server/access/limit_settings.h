// Limits on the use of the server by one client or of one adapter, as the operator sets them.
#pragma once

#include <cstdint>
#include <optional>

namespace chorus::server {

// Each limit: nullopt: not set here, so the default applies; 0: no limit.
struct LimitSettings {
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> tokens_per_minute;  // of prompts and answers
  std::optional<int64_t> concurrent_requests;

  bool any() const { return requests_per_minute || tokens_per_minute || concurrent_requests; }
};

}  // namespace chorus::server
