// Runs streams of the base model while requests for adapters arrive at fixed intervals. Measures how much adapter
// loading delays the streams and how long an adapter's request waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "chorus/executor.h"

namespace chorus {

struct AdapterChurn {
  int streams = 8;
  int stream_prompt = 32;
  int prompt = 16;  // tokens of an adapter's request
  int new_tokens = 4;
  std::chrono::milliseconds interval{250};
  std::chrono::milliseconds duration{8000};
};

struct ChurnTimes {
  std::vector<double> between;  // seconds between two tokens of a stream
  std::vector<double> first;    // seconds from an adapter's request to its first token
};

// `tasks` holds the task ids of the adapters, which are requested in turn from tasks[next % size] on; `next` is
// advanced. Throws Error when a request fails.
ChurnTimes runChurn(executor::Executor& executor, const AdapterChurn& work, const std::vector<executor::IdType>& tasks,
                    size_t& next, std::mt19937& rng);

// Limits on the cost of loading: ratio of the streams' 99th percentile with and without loading, and the wait for a
// cold adapter beyond that for a warm one.
struct ChurnTargets {
  double between_ratio = 1.25;
  double extra_steps = 2;
  double extra_seconds = 0.150;
};

struct ChurnResult {
  double step = 0;  // median time between tokens without loading, seconds
  double warm_between_p99 = 0, cold_between_p99 = 0;
  double warm_first = 0, cold_first = 0;  // medians of the best run
  double coldFirstTarget(const ChurnTargets& targets) const {
    return warm_first + targets.extra_steps * step + targets.extra_seconds;
  }
};

// Takes the best run for each figure.
ChurnResult bestOf(const std::vector<ChurnTimes>& warm, const std::vector<ChurnTimes>& cold);

}  // namespace chorus
