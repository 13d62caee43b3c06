#include "server/openai/queue_timeout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "server/errors.h"

namespace chorus::server {

std::optional<std::chrono::milliseconds> queueTimeoutOf(const ApiContext& context, const HttpRequest& request) {
  const std::string_view text = request.header(kQueueTimeoutHeader);
  if (text.empty()) return context.queue_timeout;
  constexpr int64_t kMost = 1'000'000'000;
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < 1 || value > kMost) {
    throw ApiError::invalid(
        fmt::format("The header {} must be a whole number from 1 to {}.", kQueueTimeoutHeader, kMost), std::nullopt,
        "invalid_value");
  }
  const std::chrono::milliseconds own(value);
  return context.queue_timeout ? std::min(own, *context.queue_timeout) : own;
}

}  // namespace chorus::server
