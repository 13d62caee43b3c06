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

// Draws the lengths and the tokens.
void RequestPlan::draw(PlannedRequest& request, std::mt19937_64& random) const {
  request.prompt.resize(static_cast<size_t>(lengthFrom(random, options_.prompt)));
  request.output_tokens = lengthFrom(random, options_.output);
  std::mt19937_64 shared(options_.seed + 3 + request.model);
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    request.prompt[i] = below(i < static_cast<size_t>(options_.shared_prefix) ? shared : random, options_.vocabulary);
  }
}

PlannedRequest RequestPlan::pooled(size_t model, int index) const {
  PlannedRequest request{.model = model, .pool_index = index};
  // The constant keeps the seeds of prompts apart from those of the models' prefixes.
  std::mt19937_64 random((options_.seed ^ 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(index));
  draw(request, random);
  return request;
}

std::optional<PlannedRequest> RequestPlan::nextAt(double time) {
  if (options_.requests > 0 && made_ == options_.requests) return std::nullopt;
  if (options_.duration > 0 && time >= options_.duration) return std::nullopt;
  ++made_;
  PlannedRequest request{.model = mix_.choose(time)};
  if (options_.pool > 0) {
    request = pooled(request.model, below(random_, options_.pool));
  } else {
    draw(request, random_);
  }
  request.time = time;
  return request;
}

}  // namespace chorus
