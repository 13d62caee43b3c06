// Streams of the base model that go on while requests for adapters come in at a fixed pace: what do the streams feel of
// an adapter's loading, and how long does its request wait?
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
  int prompt = 16;  // of an adapter's request
  int new_tokens = 4;
  std::chrono::milliseconds interval{250};
  std::chrono::milliseconds duration{8000};
};

struct ChurnTimes {
  std::vector<double> between;  // seconds between two tokens of a stream
  std::vector<double> first;    // from an adapter's request to its first token
};

// tasks: of the adapters that are asked for, in turn, from tasks[next % size] on; next moves on. Throws Error when a
// request fails.
ChurnTimes runChurn(executor::Executor& executor, const AdapterChurn& work, const std::vector<executor::IdType>& tasks,
                    size_t& next, std::mt19937& rng);

// What is asked of loading: the streams' 99th percentile against that without loading, and the wait for a cold adapter
// beyond a warm one's.
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

// Of each figure the best run.
ChurnResult bestOf(const std::vector<ChurnTimes>& warm, const std::vector<ChurnTimes>& cold);

}  // namespace chorus
