#include "server/access/limit_answers.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chorus::server {
namespace {

using std::chrono::ceil;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A client with too many requests at once may try again when one of them ends, which is not known.
constexpr milliseconds kUnknownWait{500};

std::string_view unitOf(LimitKind kind) {
  switch (kind) {
    case LimitKind::kRequests:
      return "requests per minute";
    case LimitKind::kTokens:
      return "tokens per minute";
    case LimitKind::kConcurrentRequests:
      break;
  }
  return "concurrent requests";
}

void append(HttpHeaders& headers, std::string_view kind, const LimitState& state, LimitForm form) {
  if (!state.limit) return;
  const std::string limit = std::to_string(*state.limit), left = std::to_string(std::max<int64_t>(state.left, 0));
  headers.emplace_back(fmt::format("x-ratelimit-limit-{}", kind), limit);
  headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", kind), left);
  headers.emplace_back(fmt::format("x-ratelimit-reset-{}", kind), durationText(state.until_full));
  if (!form.anthropic_now) return;
  headers.emplace_back(fmt::format("anthropic-ratelimit-{}-limit", kind), limit);
  headers.emplace_back(fmt::format("anthropic-ratelimit-{}-remaining", kind), left);
  headers.emplace_back(fmt::format("anthropic-ratelimit-{}-reset", kind),
                       timeText(*form.anthropic_now + state.until_full));
}

}  // namespace

ApiError limitError(const LimitRefusal& refusal, LimitForm form) {
  const std::string_view unit = unitOf(refusal.kind);
  const bool is_endless = refusal.kind == LimitKind::kTokens && !refusal.wait;
  std::string message;
  if (is_endless) {
    message =
        fmt::format("Request too large for {} on {}: limit {}, requested {}. Please reduce the length of the prompt",
                    refusal.subject_text, unit, refusal.limit, refusal.requested);
  } else {
    const std::string when =
        refusal.wait ? "in " + durationText(*refusal.wait) : std::string("when one of them has ended");
    message =
        fmt::format("Rate limit reached for {} on {}: limit {}, used {}, requested {}. Please try again {}",
                    refusal.subject_text, unit, refusal.limit, refusal.limit - refusal.left, refusal.requested, when);
  }
  message += fmt::format(", or let the operator raise {}.", refusal.setting);
  ApiError error(429, std::move(message), refusal.kind == LimitKind::kTokens ? "tokens" : "requests", std::nullopt,
                 "rate_limit_exceeded");
  HttpHeaders headers;
  const LimitState state{.limit = refusal.limit, .left = refusal.left, .until_full = refusal.until_full};
  if (refusal.kind == LimitKind::kRequests) append(headers, "requests", state, form);
  if (refusal.kind == LimitKind::kTokens) append(headers, "tokens", state, form);
  for (auto& [name, value] : headers) error.addHeader(std::move(name), std::move(value));
  if (is_endless) {
    error.addHeader("x-should-retry", "false");
    return error;
  }
  const milliseconds wait = refusal.wait ? ceil<milliseconds>(*refusal.wait) : kUnknownWait;
  error.addHeader("retry-after-ms", std::to_string(wait.count()));
  error.addHeader("retry-after", std::to_string(ceil<seconds>(wait).count()));
  return error;
}

void LimitState::keepTighter(TokenBucket& bucket, TokenBucket::Time now) {
  const int64_t in_bucket = bucket.left(now);
  if (limit && in_bucket >= left) return;
  limit = bucket.perMinute();
  left = in_bucket;
  until_full = bucket.untilFull(now);
}

HttpHeaders limitHeaders(const LimitState& requests, const LimitState& tokens, LimitForm form) {
  HttpHeaders headers;
  append(headers, "requests", requests, form);
  append(headers, "tokens", tokens, form);
  return headers;
}

std::string durationText(microseconds duration) {
  const int64_t total = ceil<milliseconds>(duration).count();
  if (total < 1000) return fmt::format("{}ms", total);
  const int64_t whole = total / 1000;
  std::string text;
  if (whole >= 3600) text += fmt::format("{}h", whole / 3600);
  if (whole >= 60) text += fmt::format("{}m", whole / 60 % 60);
  text += std::to_string(whole % 60);
  if (total % 1000 != 0) {
    std::string digits = fmt::format("{:03}", total % 1000);
    while (digits.back() == '0') digits.pop_back();
    text += "." + digits;
  }
  return text + "s";
}

std::string timeText(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(ceil<seconds>(time))));
}

}  // namespace chorus::server
