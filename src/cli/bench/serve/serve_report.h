// Reports the results of a load as a table and JSON.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "cli/bench/percentiles.h"
#include "cli/bench/serve/serve_load.h"

namespace chorus {

// Limits that a request must meet to count for goodput; an unset limit is always met.
struct ServeTargets {
  std::optional<double> first_s;  // time to first token
  std::optional<double> gap_s;    // mean time per token after it
};

// Latencies are in seconds from the planned arrival, so that a generator or server that falls behind makes them longer.
// Token latencies include requests that were unfinished when the load was stopped; rates and whole-request latencies
// include only complete requests.
struct ServeSummary {
  int streams = 0;  // of a closed loop; 0: an open loop
  size_t sent = 0, complete = 0, good = 0, unfinished = 0;
  std::map<std::string, size_t> errors;              // number of each kind
  std::map<std::string, std::string> error_samples;  // the first message of each kind
  double seconds = 0;
  double requests_per_s = 0, prompt_tokens_per_s = 0, output_tokens_per_s = 0, goodput_per_s = 0;
  Distribution first, gap, per_token, latency;
  Distribution first_of_last_try;  // seconds from the beginning of the last try, over requests that were tried again
  int64_t refused_429 = 0, retries = 0;  // over all tries
  size_t recovered = 0;                  // complete requests that were refused before
  // Answers that were compared with their solo answers.
  bool verify = false;
  size_t verified = 0, different = 0, unknown_content = 0;
  Distribution lateness;  // seconds from planned to sent, over all requests
};

ServeSummary summarizeLoad(const LoadResult& result, const ServeTargets& targets);
std::string serveTable(const ServeSummary& summary, const ServeTargets& targets);
// Latencies are in milliseconds. "models" has one row for each model that was requested. "quantiles" has the curves
// that bench/plot_load.py draws: up to 400 values of quantilesOf() for each kind of latency.
Json serveJson(const LoadResult& result, const ServeSummary& summary, const ServeTargets& targets,
               const std::vector<std::string>& models);

}  // namespace chorus
