#include "cli/bench/serve/retry_after.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <string_view>

namespace chorus {
namespace {

using std::chrono::milliseconds;

std::optional<std::string_view> valueOf(const HttpHeaders& headers, std::string_view name) {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return h.first == name; });
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

milliseconds bounded(double count) {
  return milliseconds(static_cast<int64_t>(std::clamp(count, 0.0, static_cast<double>(kLongestRetryWait.count()))));
}

std::optional<double> numberOf(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<milliseconds> retryAfter(const HttpHeaders& headers, std::chrono::system_clock::time_point now) {
  if (const auto text = valueOf(headers, "retry-after-ms")) {
    if (const auto number = numberOf(*text)) return bounded(*number);
  }
  const auto text = valueOf(headers, "retry-after");
  if (!text) return std::nullopt;
  if (const auto number = numberOf(*text)) return bounded(*number * 1e3);
  std::tm parts{};
  const std::string date(*text);
  const char* const end = strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const auto time = std::chrono::system_clock::from_time_t(timegm(&parts));
  return bounded(std::chrono::duration<double, std::milli>(time - now).count());
}

milliseconds retryWait(std::optional<milliseconds> named, int64_t earlier, double unit) {
  const milliseconds wait = named.value_or(milliseconds(500 << std::min<int64_t>(earlier, 4)));
  return wait + milliseconds(static_cast<int64_t>(unit * static_cast<double>(wait.count())));
}

}  // namespace chorus
