#include "server/metrics/request_record.h"

#include <algorithm>
#include <utility>

#include "server/metrics/server_metrics.h"
#include "server/metrics/trace_context.h"

namespace chorus::server {
namespace {

using Clock = RequestRecord::Clock;

double secondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::max(std::chrono::duration<double>(to - from).count(), 0.0);
}

}  // namespace

RequestRecord::RequestRecord(std::shared_ptr<ServerMetrics> metrics, const HttpRequest& request, std::string_view route)
    : metrics_(std::move(metrics)),
      received_(request.received == Clock::time_point() ? Clock::now() : request.received),
      line_{.id = request.id,
            .trace_id = std::string(traceIdOf(request.header("traceparent"))),
            .method = request.method.substr(0, 16),
            .route = route,
            .client = request.client ? request.client->name() : ""} {}

void RequestRecord::accepted(const ServedModel& model, const ModelCatalog& models, std::vector<int32_t> prompts,
                             int64_t prompt_tokens, int32_t max_tokens) {
  auto counters = metrics_->countersOf(model, models);
  const std::lock_guard lock(mutex_);
  model_counters_ = std::move(counters);
  line_.model = model.name;
  line_.prompt_tokens = prompt_tokens;
  max_tokens_ = max_tokens;
  choices_.resize(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) choices_[i].prompt_tokens = prompts[i];
  if (!answered_) return;  // otherwise the client has disconnected
  for (Choice& choice : choices_) finish(choice, Outcome::kAbort);
}

void RequestRecord::arrived(size_t index, size_t tokens, const executor::Result& result) {
  const std::lock_guard lock(mutex_);
  if (index >= choices_.size() || choices_[index].ended) return;
  RequestCounters& all = metrics_->requests();
  if (!std::exchange(first_response_, true)) {
    all.all.prompt_tokens += static_cast<uint64_t>(line_.prompt_tokens);
    model_counters_->prompt_tokens += static_cast<uint64_t>(line_.prompt_tokens);
  }
  if (!result.adapterContentHash.empty()) line_.content_hash = result.adapterContentHash;
  line_.cached_tokens = std::min<int64_t>(line_.cached_tokens.value_or(result.cachedTokens), result.cachedTokens);
  Choice& choice = choices_[index];
  if (result.requestPerfMetrics) choice.timing = result.requestPerfMetrics->timingMetrics;
  if (tokens == 0) return;
  all.all.generation_tokens += tokens;
  model_counters_->generation_tokens += tokens;
  line_.generated_tokens += static_cast<int64_t>(tokens);
  const Clock::time_point now = choice.timing ? choice.timing->lastTokenTime : Clock::now();
  uint64_t gaps = tokens;
  if (choice.tokens == 0) {
    choice.first = choice.timing ? choice.timing->firstTokenTime : now;
    const double seconds = secondsBetween(received_, choice.first);
    all.all.first_token.observe(seconds);
    model_counters_->first_token.observe(seconds);
    if (!line_.first_token_seconds) line_.first_token_seconds = seconds;
    choice.last = choice.first;
    --gaps;
  }
  if (gaps > 0) all.inter_token.observe(secondsBetween(choice.last, now) / static_cast<double>(gaps), gaps);
  choice.last = now;
  choice.tokens += tokens;
}

void RequestRecord::finished(size_t choice, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  if (choice < choices_.size()) finish(choices_[choice], outcome);
}

void RequestRecord::finishedAll(Outcome outcome) {
  const std::lock_guard lock(mutex_);
  for (Choice& choice : choices_) finish(choice, outcome);
}

void RequestRecord::finish(Choice& choice, Outcome outcome) {
  if (std::exchange(choice.ended, true)) return;
  if (!outcome_ || outcome > *outcome_) outcome_ = outcome;
  RequestCounters& all = metrics_->requests();
  ++all.all.choices[static_cast<size_t>(outcome)];
  ++model_counters_->choices[static_cast<size_t>(outcome)];
  all.prompt_length.observe(choice.prompt_tokens);
  all.generation_length.observe(static_cast<double>(choice.tokens));
  if (max_tokens_ > 0) all.max_generation_length.observe(max_tokens_);
  all.whole.observe(secondsBetween(received_, Clock::now()));
  if (choice.tokens > 1) {
    all.token_of_choice.observe(secondsBetween(choice.first, choice.last) / static_cast<double>(choice.tokens - 1));
  }
  if (!choice.timing || choice.tokens == 0) return;
  const auto& timing = *choice.timing;
  const double queue = secondsBetween(timing.arrivalTime, timing.firstScheduledTime);
  all.queue.observe(queue);
  all.prefill.observe(secondsBetween(timing.firstScheduledTime, choice.first));
  all.decode.observe(secondsBetween(choice.first, choice.last));
  all.inference.observe(secondsBetween(timing.firstScheduledTime, choice.last));
  if (!line_.queue_seconds) line_.queue_seconds = queue;
}

void RequestRecord::answered(int status, uint64_t bytes, bool disconnected) {
  if (disconnected) finishedAll(Outcome::kAbort);
  AccessLine line;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
    line_.status = status;
    line_.bytes = bytes;
    line_.seconds = secondsBetween(received_, Clock::now());
    line_.disconnected = disconnected;
    if (outcome_) line_.finish_reason = kOutcomes[static_cast<size_t>(*outcome_)];
    line = line_;
  }
  metrics_->countAnswer(line);
}

}  // namespace chorus::server
