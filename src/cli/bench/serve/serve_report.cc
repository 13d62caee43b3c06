#include "cli/bench/serve/serve_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace chorus {
namespace {

struct Latencies {
  std::vector<double> first, gap, per_token, latency;

  void add(const RequestRecord& record) {
    if (!record.complete() && !record.unfinished()) return;
    if (record.first >= 0) first.push_back(record.timeToFirst());
    gap.insert(gap.end(), record.gaps.begin(), record.gaps.end());
    if (!record.complete()) return;
    if (record.output_tokens > 1) per_token.push_back(record.timePerToken());
    latency.push_back(record.latency());
  }
};

Latencies latenciesOf(const std::vector<RequestRecord>& records) {
  Latencies all;
  for (const RequestRecord& record : records) all.add(record);
  return all;
}

bool keeps(const RequestRecord& record, const ServeTargets& targets) {
  if (!record.complete()) return false;
  if (targets.first_s && (record.first < 0 || record.timeToFirst() > *targets.first_s)) return false;
  return !targets.gap_s || record.timePerToken() <= *targets.gap_s;
}

std::string targetsText(const ServeTargets& targets) {
  std::string text;
  if (targets.first_s) text += fmt::format("first token within {:g} ms", *targets.first_s * 1e3);
  if (targets.gap_s) text += fmt::format("{}{:g} ms a token", text.empty() ? "" : ", ", *targets.gap_s * 1e3);
  return text;
}

std::string row(const char* name, const Distribution& d) {
  if (d.count == 0) return fmt::format("{:<22} {:>9}\n", name, "none");
  return fmt::format("{:<22} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, d.mean * 1e3, d.p50 * 1e3,
                     d.p90 * 1e3, d.p99 * 1e3, d.max * 1e3);
}

constexpr size_t kCurvePoints = 400;  // more than the height of a plot in pixels

std::vector<double> quantilesMs(std::vector<double> seconds) {
  for (double& value : seconds) value *= 1e3;
  return quantilesOf(std::move(seconds), kCurvePoints);
}

Json optionalMs(const std::optional<double>& seconds) { return seconds ? Json(*seconds * 1e3) : Json(nullptr); }

}  // namespace

ServeSummary summarizeLoad(const LoadResult& result, const ServeTargets& targets) {
  ServeSummary s{.sent = result.records.size(), .seconds = result.seconds};
  std::vector<double> lateness;
  double prompt_tokens = 0, output_tokens = 0;
  for (const RequestRecord& record : result.records) {
    lateness.push_back(record.sent - record.planned);
    if (record.unfinished()) {
      ++s.unfinished;
      continue;
    }
    if (!record.error.empty()) {
      ++s.errors[record.error];
      s.error_samples.emplace(record.error, record.error_text);
      continue;
    }
    ++s.complete;
    prompt_tokens += record.prompt_tokens;
    output_tokens += record.output_tokens;
    if (keeps(record, targets)) ++s.good;
  }
  if (s.seconds > 0) {
    s.requests_per_s = static_cast<double>(s.complete) / s.seconds;
    s.prompt_tokens_per_s = prompt_tokens / s.seconds;
    s.output_tokens_per_s = output_tokens / s.seconds;
    s.goodput_per_s = static_cast<double>(s.good) / s.seconds;
  }
  Latencies all = latenciesOf(result.records);
  s.first = distributionOf(std::move(all.first));
  s.gap = distributionOf(std::move(all.gap));
  s.per_token = distributionOf(std::move(all.per_token));
  s.latency = distributionOf(std::move(all.latency));
  s.lateness = distributionOf(std::move(lateness));
  return s;
}

std::string serveTable(const ServeSummary& s, const ServeTargets& targets) {
  std::string text = fmt::format("{} requests sent, {} answered in full, {} failed", s.sent, s.complete,
                                 s.sent - s.complete - s.unfinished);
  if (s.unfinished > 0) text += fmt::format(", {} unfinished when the load was stopped", s.unfinished);
  text += fmt::format(", in {:.2f} s\n", s.seconds);
  for (const auto& [kind, count] : s.errors) {
    text += fmt::format("  {} x {}: {}\n", count, kind, s.error_samples.at(kind));
  }
  text += fmt::format("{:.2f} requests/s, {:.1f} prompt tokens/s, {:.1f} output tokens/s\n", s.requests_per_s,
                      s.prompt_tokens_per_s, s.output_tokens_per_s);
  if (targets.first_s || targets.gap_s) {
    text += fmt::format("goodput {:.2f} requests/s: {} of {} kept {}\n", s.goodput_per_s, s.good, s.sent,
                        targetsText(targets));
  }
  text += fmt::format("\n{:<22} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "p50", "p90", "p99", "max");
  text += row("time to first token", s.first) + row("between tokens", s.gap) +
          row("per token of a request", s.per_token) + row("whole request", s.latency);
  // Shown because the results of a generator that sends late describe the generator instead of the server.
  if (s.lateness.p99 > 0.01) text += row("generator late by", s.lateness);
  return text;
}

Json serveJson(const LoadResult& result, const ServeSummary& s, const ServeTargets& targets,
               const std::vector<std::string>& models) {
  Json errors = Json::object();
  for (const auto& [kind, count] : s.errors) errors[kind] = {{"count", count}, {"first", s.error_samples.at(kind)}};
  Json by_model = Json::array();
  for (size_t i = 0; i < models.size(); ++i) {
    std::vector<RequestRecord> own;
    std::copy_if(result.records.begin(), result.records.end(), std::back_inserter(own),
                 [i](const RequestRecord& record) { return record.model == i; });
    if (own.empty()) continue;
    Latencies latencies = latenciesOf(own);
    by_model.push_back({{"model", models[i]},
                        {"sent", own.size()},
                        {"complete", latencies.latency.size()},
                        {"time_to_first_token_ms", distributionJson(distributionOf(std::move(latencies.first)), 1e3)},
                        {"inter_token_ms", distributionJson(distributionOf(std::move(latencies.gap)), 1e3)}});
  }
  Latencies all = latenciesOf(result.records);
  return {{"sent", s.sent},
          {"complete", s.complete},
          {"unfinished", s.unfinished},
          {"stopped", result.stopped},
          {"seconds", s.seconds},
          {"errors", errors},
          {"requests_per_s", s.requests_per_s},
          {"prompt_tokens_per_s", s.prompt_tokens_per_s},
          {"output_tokens_per_s", s.output_tokens_per_s},
          {"goodput",
           {{"requests_per_s", s.goodput_per_s},
            {"requests", s.good},
            {"slo_ttft_ms", optionalMs(targets.first_s)},
            {"slo_itl_ms", optionalMs(targets.gap_s)}}},
          {"time_to_first_token_ms", distributionJson(s.first, 1e3)},
          {"inter_token_ms", distributionJson(s.gap, 1e3)},
          {"time_per_output_token_ms", distributionJson(s.per_token, 1e3)},
          {"latency_ms", distributionJson(s.latency, 1e3)},
          {"generator_lateness_ms", distributionJson(s.lateness, 1e3)},
          {"quantiles",
           {{"time_to_first_token_ms", quantilesMs(std::move(all.first))},
            {"inter_token_ms", quantilesMs(std::move(all.gap))},
            {"latency_ms", quantilesMs(std::move(all.latency))}}},
          {"models", by_model}};
}

}  // namespace chorus
