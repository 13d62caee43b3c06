// Reports limits on use to a client: the error of status 429, OpenAI's headers x-ratelimit-*, and Anthropic's
// headers anthropic-ratelimit-*.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "server/access/limit_counters.h"
#include "server/access/token_bucket.h"
#include "server/errors.h"
#include "server/http/http.h"

namespace chorus::server {

struct LimitRefusal {
  LimitSubject subject = LimitSubject::kClient;
  std::string subject_text;  // the subject as it follows "for" in a sentence
  LimitKind kind = LimitKind::kRequests;
  std::string setting;  // where the limit is set
  int64_t limit = 0, left = 0, requested = 1;
  std::optional<std::chrono::microseconds> wait;  // nullopt: not known, or for tokens: more than the limit are needed
  std::chrono::microseconds until_full{0};
};

// Orders refusals: one that no waiting ends is greatest, then the one with the longest wait.
inline auto rankOf(const LimitRefusal& refusal) {
  const bool endless = refusal.kind == LimitKind::kTokens && !refusal.wait;
  return std::tuple(endless, refusal.wait.value_or(std::chrono::microseconds(0)));
}

// The headers that a request's answer has.
struct LimitForm {
  // The present time, if the answer also has the headers of Anthropic's API. They state points in time; OpenAI's state
  // durations.
  std::optional<std::chrono::system_clock::time_point> anthropic_now;
};

// Status 429 with OpenAI's type and code, and the headers of limitHeaders() for the limit that was exceeded. The
// headers retry-after-ms and retry-after say when the client may try again; x-should-retry: false says that no waiting
// helps.
ApiError limitError(const LimitRefusal& refusal, LimitForm form = {});

// State of the limit that has least left, among the limits of one kind.
struct LimitState {
  std::optional<int64_t> limit;  // nullopt: there is no limit
  int64_t left = 0;
  std::chrono::microseconds until_full{0};

  // Takes over the bucket's state if less is left in it.
  void keepTighter(TokenBucket& bucket, TokenBucket::Time now);
};

// x-ratelimit-limit-requests, -remaining-requests and -reset-requests, and the same for tokens; without those of a kind
// that has no limit. In Anthropic's form anthropic-ratelimit-requests-limit, -remaining and -reset, and the same for
// tokens, follow.
HttpHeaders limitHeaders(const LimitState& requests, const LimitState& tokens, LimitForm form = {});

// The form of OpenAI's reset headers: "250ms", "1.5s", "6m0s", "1h0m0s"; rounded up to milliseconds.
std::string durationText(std::chrono::microseconds duration);

// The form of Anthropic's reset headers, RFC 3339: "2024-05-01T12:00:00Z"; rounded up to seconds.
std::string timeText(std::chrono::system_clock::time_point time);

}  // namespace chorus::server
