#include "server/metrics/server_metrics.h"

#include <algorithm>

#include "server/metrics/engine_metrics.h"
#include "server/metrics/metric_families.h"
#include "server/metrics/process_metrics.h"

namespace chorus::server {
namespace {

double real(uint64_t value) { return static_cast<double>(value); }

// Methods that have a label of their own: whatever else a client sends is one.
std::string methodLabel(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    if (method == known) return std::string(method);
  }
  return "other";
}

MetricLabels with(MetricLabels labels, std::string name, std::string_view value) {
  labels.push_back({std::move(name), std::string(value)});
  return labels;
}

void addRequests(MetricFamilies& families, const RequestCounters& counters, const MetricLabels& labels) {
  for (const char* prefix : {"", "vllm:"}) {
    const std::string at(prefix);
    families.counter(at + "prompt_tokens_total", "Prompt tokens of answers that began",
                     real(counters.all.prompt_tokens), labels);
    families.counter(at + "generation_tokens_total", "Generated tokens", real(counters.all.generation_tokens), labels);
    families.histogram(at + "time_to_first_token_seconds",
                       "Seconds from the complete request to a choice's first token",
                       counters.all.first_token.collect(), labels);
    families.histogram(at + "time_per_output_token_seconds", "Time from token to token", counters.inter_token.collect(),
                       labels);
    families.histogram(at + "e2e_request_latency_seconds", "Seconds from the complete request to a choice's end",
                       counters.whole.collect(), labels);
    families.histogram(at + "request_prompt_tokens", "Prompt tokens of a choice", counters.prompt_length.collect(),
                       labels);
    families.histogram(at + "request_generation_tokens", "Generated tokens of a choice",
                       counters.generation_length.collect(), labels);
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      families.counter(at + (at.empty() ? "request_finish_total" : "request_success_total"),
                       "Choices that ended, by reason", real(counters.all.choices[i]),
                       with(labels, "finished_reason", kOutcomes[i]));
    }
  }
  families.histogram("vllm:inter_token_latency_seconds", "Time from token to token", counters.inter_token.collect(),
                     labels);
  families.histogram("vllm:request_time_per_output_token_seconds", "Mean seconds from token to token of a choice",
                     counters.token_of_choice.collect(), labels);
  families.histogram("vllm:request_queue_time_seconds",
                     "Seconds from a choice's arrival at the engine to its first step", counters.queue.collect(),
                     labels);
  families.histogram("vllm:request_prefill_time_seconds", "Seconds from a choice's first step to its first token",
                     counters.prefill.collect(), labels);
  families.histogram("vllm:request_decode_time_seconds", "Seconds from a choice's first token to its last",
                     counters.decode.collect(), labels);
  families.histogram("vllm:request_inference_time_seconds", "Seconds from a choice's first step to its last token",
                     counters.inference.collect(), labels);
  families.histogram("vllm:request_max_num_generation_tokens", "Largest number of tokens that a choice was asked for",
                     counters.max_generation_length.collect(), labels);
}

void addModel(MetricFamilies& families, std::string_view name, const ModelCounters& counters) {
  const MetricLabels labels{{"model", std::string(name)}};
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    families.counter("chorus_model_choices_total", "Choices of a model that ended, by reason",
                     real(counters.choices[i]), with(labels, "finished_reason", kOutcomes[i]));
  }
  families.counter("chorus_model_prompt_tokens_total", "Prompt tokens of answers that began, for each model",
                   real(counters.prompt_tokens), labels);
  families.counter("chorus_model_generation_tokens_total", "Generated tokens of a model",
                   real(counters.generation_tokens), labels);
  families.histogram("chorus_model_time_to_first_token_seconds",
                     "Seconds from the complete request to a choice's first token, for each model",
                     counters.first_token.collect(), labels);
}

void addConnections(MetricFamilies& families, const HttpCounters& http) {
  families.gauge("chorus_http_connections_open", "Open connections", static_cast<double>(http.open.load()));
  const auto connections = [&](const char* outcome, uint64_t count) {
    families.counter("chorus_http_connections_total",
                     "Connections: accepted; refused for lack of a place; closed to make place for another",
                     real(count), {{"outcome", outcome}});
  };
  connections("accepted", http.accepted);
  connections("refused", http.refused);
  connections("evicted", http.evicted);
  connections("tls_failed", http.tls_failures);
  families.counter("chorus_http_received_bytes_total", "Bytes received from clients", real(http.received_bytes));
  families.counter("chorus_http_sent_bytes_total", "Bytes sent to clients", real(http.sent_bytes));
}

void addLimits(MetricFamilies& families, const LimitCounters& limits) {
  for (const LimitSubject subject : kLimitSubjects) {
    for (const LimitKind kind : kLimitKinds) {
      families.counter("chorus_limit_refusals_total", "Requests refused by a limit on use",
                       real(limits.refused(subject, kind)),
                       {{"limit", std::string(settingName(kind))}, {"subject", std::string(subjectName(subject))}});
    }
  }
}

}  // namespace

ServerMetrics::ServerMetrics() : ServerMetrics(Options()) {}
ServerMetrics::ServerMetrics(Options options) : options_(std::move(options)) {}

std::shared_ptr<ModelCounters> ServerMetrics::countersOf(const ServedModel& model, const ModelCatalog& models) {
  const bool single = model.composition.empty() && model.name != kOther && models.find(model.name) != nullptr;
  const std::lock_guard lock(mutex_);
  if (single) {
    if (const auto known = models_.find(model.name); known != models_.end()) return known->second;
    if (models_.size() >= options_.max_adapters) dropRemoved(models);
    if (models_.size() < options_.max_adapters) {
      return models_.emplace(model.name, std::make_shared<ModelCounters>()).first->second;
    }
  }
  other_used_ = true;
  return other_;
}

void ServerMetrics::dropRemoved(const ModelCatalog& models) {
  std::erase_if(models_, [&](const auto& entry) { return models.find(entry.first) == nullptr; });
}

void ServerMetrics::countAnswer(const AccessLine& line) {
  {
    const std::lock_guard lock(mutex_);
    ++answers_[{line.route, methodLabel(line.method), line.status}];
    if (line.disconnected) ++disconnects_;
  }
  if (options_.access_log) options_.access_log->write(line);
}

void ServerMetrics::countUnrouted(const UnroutedAnswer& answer) {
  countAnswer({.id = std::string(answer.id),
               .trace_id = {},
               .method = std::string(answer.method),
               .route = {},
               .client = std::string(answer.client),
               .status = answer.status,
               .bytes = answer.bytes,
               .model = {},
               .content_hash = {}});
}

std::string ServerMetrics::text(const ApiContext* context) {
  MetricFamilies families;
  if (context != nullptr) {
    const MetricLabels labels{{"model_name", context->models.base().name}, {"engine", "0"}};
    addRequests(families, requests_, labels);
    addEngineMetrics(families, *context, labels);
  }
  Models of_models;
  Answers answers;
  uint64_t disconnects = 0;
  {
    // Only copies are made here, because every answered request takes the mutex.
    const std::lock_guard lock(mutex_);
    if (context != nullptr) dropRemoved(context->models);
    of_models = models_;
    if (other_used_) of_models.emplace(kOther, other_);
    answers = answers_;
    disconnects = disconnects_;
  }
  for (const auto& [name, counters] : of_models) addModel(families, name, *counters);
  for (const auto& [key, count] : answers) {
    const auto& [route, method, status] = key;
    families.counter("chorus_http_requests_total", "Answered requests", real(count),
                     {{"route", route.empty() ? "none" : std::string(route)},
                      {"method", method},
                      {"status", std::to_string(status)}});
  }
  families.counter("chorus_http_disconnects_total", "Requests whose client disconnected before the end of the answer",
                   real(disconnects));
  addLimits(families, *options_.limits);
  addConnections(families, *options_.http);
  addProcessMetrics(families);
  return families.text();
}

}  // namespace chorus::server
