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
      route_(route),
      method_(request.method.substr(0, 16)),
      id_(request.id),
      trace_id_(traceIdOf(request.header("traceparent"))),
      client_(request.client ? request.client->name() : ""),
      received_(request.received == Clock::time_point() ? Clock::now() : request.received) {}

void RequestRecord::accepted(const ServedModel& model, const ModelCatalog& models, std::vector<int32_t> prompts,
                             int64_t prompt_tokens, int32_t max_tokens) {
  auto counters = metrics_->countersOf(model, models);
  const std::lock_guard lock(mutex_);
  model_counters_ = std::move(counters);
  model_ = model.name;
  prompt_tokens_ = prompt_tokens;
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
    all.all.prompt_tokens += static_cast<uint64_t>(prompt_tokens_);
    model_counters_->prompt_tokens += static_cast<uint64_t>(prompt_tokens_);
  }
  if (!result.adapterContentHash.empty()) content_hash_ = result.adapterContentHash;
  cached_tokens_ = std::min<int64_t>(cached_tokens_.value_or(result.cachedTokens), result.cachedTokens);
  Choice& choice = choices_[index];
  if (result.requestPerfMetrics) choice.timing = result.requestPerfMetrics->timingMetrics;
  if (tokens == 0) return;
  all.all.generation_tokens += tokens;
  model_counters_->generation_tokens += tokens;
  generated_tokens_ += static_cast<int64_t>(tokens);
  const Clock::time_point now = choice.timing ? choice.timing->lastTokenTime : Clock::now();
  uint64_t gaps = tokens;
  if (choice.tokens == 0) {
    choice.first = choice.timing ? choice.timing->firstTokenTime : now;
    const double seconds = secondsBetween(received_, choice.first);
    all.all.first_token.observe(seconds);
    model_counters_->first_token.observe(seconds);
    if (!first_token_seconds_) first_token_seconds_ = seconds;
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
  if (!queue_seconds_) queue_seconds_ = queue;
}

void RequestRecord::answered(int status, uint64_t bytes, bool disconnected) {
  if (disconnected) finishedAll(Outcome::kAbort);
  AccessLine line;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
    line = {.id = id_,
            .trace_id = trace_id_,
            .method = method_,
            .route = route_,
            .client = client_,
            .status = status,
            .bytes = bytes,
            .seconds = secondsBetween(received_, Clock::now()),
            .disconnected = disconnected,
            .model = model_,
            .content_hash = content_hash_,
            .prompt_tokens = prompt_tokens_,
            .generated_tokens = generated_tokens_,
            .cached_tokens = cached_tokens_,
            .queue_seconds = queue_seconds_,
            .first_token_seconds = first_token_seconds_,
            .finish_reason = outcome_ ? kOutcomes[static_cast<size_t>(*outcome_)] : std::string_view()};
  }
  metrics_->countAnswer(line);
}

}  // namespace chorus::server
