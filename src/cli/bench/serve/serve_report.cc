#include "cli/bench/serve/serve_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace chorus {
namespace {

struct Latencies {
  std::vector<double> first, gap, per_token, latency, first_of_last_try;

  void add(const RequestRecord& record) {
    if (!record.complete() && !record.unfinished()) return;
    if (record.first >= 0) first.push_back(record.timeToFirst());
    if (record.first >= 0 && record.retries > 0) first_of_last_try.push_back(record.timeToFirstOfLastTry());
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

void addTries(const RequestRecord& record, ServeSummary& s) {
  s.refused_429 += record.refused_429;
  s.retries += record.retries;
  if (record.recovered()) ++s.recovered;
}

void addComparison(Comparison comparison, ServeSummary& s) {
  if (comparison == Comparison::kEqual || comparison == Comparison::kDifferent) ++s.verified;
  if (comparison == Comparison::kDifferent) ++s.different;
  if (comparison == Comparison::kUnknownContent) ++s.unknown_content;
}

Json optionalMs(const std::optional<double>& seconds) { return seconds ? Json(*seconds * 1e3) : Json(nullptr); }

}  // namespace

ServeSummary summarizeLoad(const LoadResult& result, const ServeTargets& targets) {
  ServeSummary s{
      .streams = result.streams, .sent = result.records.size(), .seconds = result.seconds, .verify = result.verify};
  std::vector<double> lateness;
  double prompt_tokens = 0, output_tokens = 0;
  for (const RequestRecord& record : result.records) {
    lateness.push_back(record.sent - record.planned);
    addTries(record, s);
    addComparison(record.comparison, s);
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
  s.first_of_last_try = distributionOf(std::move(all.first_of_last_try));
  s.lateness = distributionOf(std::move(lateness));
  return s;
}

std::string serveTable(const ServeSummary& s, const ServeTargets& targets) {
  std::string text = s.streams > 0 ? fmt::format("{} streams at a time: ", s.streams) : "";
  text += fmt::format("{} requests sent, {} answered in full, {} failed", s.sent, s.complete,
                      s.sent - s.complete - s.unfinished);
  if (s.unfinished > 0) text += fmt::format(", {} unfinished when the load was stopped", s.unfinished);
  text += fmt::format(", in {:.2f} s\n", s.seconds);
  for (const auto& [kind, count] : s.errors) {
    text += fmt::format("  {} x {}: {}\n", count, kind, s.error_samples.at(kind));
  }
  if (s.refused_429 > 0 || s.retries > 0) {
    text += fmt::format("refused with status 429: {}, tried again: {}, answered in full after that: {}\n",
                        s.refused_429, s.retries, s.recovered);
  }
  if (s.verify) {
    text += fmt::format("compared with their solo answers: {}, different: {}", s.verified, s.different);
    if (s.unknown_content > 0) text += fmt::format(", by weights that no solo answer names: {}", s.unknown_content);
    text += "\n";
  }
  text += fmt::format("{:.2f} requests/s, {:.1f} prompt tokens/s, {:.1f} output tokens/s\n", s.requests_per_s,
                      s.prompt_tokens_per_s, s.output_tokens_per_s);
  if (targets.first_s || targets.gap_s) {
    text += fmt::format("goodput {:.2f} requests/s: {} of {} kept {}\n", s.goodput_per_s, s.good, s.sent,
                        targetsText(targets));
  }
  text += fmt::format("\n{:<22} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "p50", "p90", "p99", "max");
  text += row("time to first token", s.first);
  if (s.first_of_last_try.count > 0) text += row("... from the last try", s.first_of_last_try);
  text += row("between tokens", s.gap) + row("per token of a request", s.per_token) + row("whole request", s.latency);
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
  const auto verifyCount = [&s](size_t count) { return s.verify ? Json(count) : Json(nullptr); };
  Latencies all = latenciesOf(result.records);
  return {{"streams", s.streams > 0 ? Json(s.streams) : Json(nullptr)},
          {"sent", s.sent},
          {"complete", s.complete},
          {"unfinished", s.unfinished},
          {"stopped", result.stopped},
          {"seconds", s.seconds},
          {"errors", errors},
          {"refused_429", s.refused_429},
          {"retries", s.retries},
          {"recovered", s.recovered},
          {"verified", verifyCount(s.verified)},
          {"different", verifyCount(s.different)},
          {"unknown_content", verifyCount(s.unknown_content)},
          {"first_difference", result.first_difference.empty() ? Json(nullptr) : Json(result.first_difference)},
          {"requests_per_s", s.requests_per_s},
          {"prompt_tokens_per_s", s.prompt_tokens_per_s},
          {"output_tokens_per_s", s.output_tokens_per_s},
          {"goodput",
           {{"requests_per_s", s.goodput_per_s},
            {"requests", s.good},
            {"slo_ttft_ms", optionalMs(targets.first_s)},
            {"slo_itl_ms", optionalMs(targets.gap_s)}}},
          {"time_to_first_token_ms", distributionJson(s.first, 1e3)},
          {"time_to_first_token_of_last_try_ms", distributionJson(s.first_of_last_try, 1e3)},
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
