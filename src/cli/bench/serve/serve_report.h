// What a load showed: a table, JSON and a plot.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "cli/bench/percentiles.h"
#include "cli/bench/serve/serve_load.h"

namespace chorus {

// What a request must keep to count for goodput; unset: anything does.
struct ServeTargets {
  std::optional<double> first_s;  // time to first token
  std::optional<double> gap_s;    // mean time per token after it
};

// Latencies in seconds, from the planned arrival, so that a generator or a server that falls behind makes them longer
// instead of arriving later. Those of tokens also count the requests that were unfinished when the load was stopped;
// rates and whole latencies are of the requests that were answered in full.
struct ServeSummary {
  size_t sent = 0, complete = 0, good = 0, unfinished = 0;
  std::map<std::string, size_t> errors;              // by kind
  std::map<std::string, std::string> error_samples;  // what was said the first time
  double seconds = 0;
  double requests_per_s = 0, prompt_tokens_per_s = 0, output_tokens_per_s = 0, goodput_per_s = 0;
  Distribution first, gap, per_token, latency;
  Distribution lateness;  // of the generator itself: from planned to sent, of all requests
};

ServeSummary summarizeLoad(const LoadResult& result, const ServeTargets& targets);
std::string serveTable(const ServeSummary& summary, const ServeTargets& targets);
// Latencies in milliseconds; with a row for each model that was asked.
Json serveJson(const LoadResult& result, const ServeSummary& summary, const ServeTargets& targets,
               const std::vector<std::string>& models);
// Cumulative curves of time to first token, gaps and whole latency.
std::string serveSvg(const LoadResult& result, const std::string& title);

}  // namespace chorus
