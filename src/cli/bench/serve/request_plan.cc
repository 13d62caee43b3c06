#include "cli/bench/serve/request_plan.h"

#include <charconv>

#include "base/error.h"

namespace chorus {
namespace {

int32_t below(std::mt19937_64& random, int32_t limit) {
  return static_cast<int32_t>(unitRandom(random) * static_cast<double>(limit));
}

int lengthFrom(std::mt19937_64& random, const LengthRange& range) {
  return range.least + below(random, range.most - range.least + 1);
}

}  // namespace

LengthRange parseLengthRange(const std::string& text, const std::string& flag) {
  constexpr int kMost = 1 << 20;
  LengthRange range;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, range.least);
  range.most = range.least;
  if (error == std::errc() && at != end && *at == ':') {
    const auto second = std::from_chars(at + 1, end, range.most);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || range.least < 1 || range.most < range.least || range.most > kMost) {
    fail(ErrorCode::kInvalidArgument, "{} {}: give a length like 128 or a range like 64:256, from 1 to {}", flag, text,
         kMost);
  }
  return range;
}

RequestPlan::RequestPlan(const RequestPlanOptions& options)
    : options_(options),
      arrivals_(options.arrival, options.rate, options.seed),
      mix_(options.models, options.skew, options.churn_seconds, options.seed + 1),
      random_(options.seed + 2) {}

std::optional<PlannedRequest> RequestPlan::next() {
  if (options_.requests > 0 && made_ == options_.requests) return std::nullopt;
  PlannedRequest request{.time = arrivals_.next()};
  if (options_.duration > 0 && request.time >= options_.duration) return std::nullopt;
  ++made_;
  request.model = mix_.choose(request.time);
  request.prompt.resize(static_cast<size_t>(lengthFrom(random_, options_.prompt)));
  request.output_tokens = lengthFrom(random_, options_.output);
  std::mt19937_64 shared(options_.seed + 3 + request.model);
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    request.prompt[i] = below(i < static_cast<size_t>(options_.shared_prefix) ? shared : random_, options_.vocabulary);
  }
  return request;
}

}  // namespace chorus
