// Computes throughput and latency of context and generation from token times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "cli/bench/executor_work.h"
#include "cli/bench/percentiles.h"

namespace chorus {

struct ThroughputResult {
  double context_tokens_per_s = 0;     // batch * prompt / time until every request has its first token
  double generation_tokens_per_s = 0;  // later tokens / the time they took
};

// The rates of one pass of the benchmark.
ThroughputResult throughputOf(const TokenTimes& times, const ExecutorWork& work);
// The medians of the rates of several passes.
ThroughputResult throughputOf(const std::vector<TokenTimes>& passes, const ExecutorWork& work);

struct LatencyResult {
  Distribution first;  // seconds from enqueueing to each request's first token
  Distribution step;   // between the tokens of a request, once every request has its first
};

LatencyResult latencyOf(const std::vector<TokenTimes>& passes);

// The most bytes that one generation step reads: weights (Engine::stepBytes), the adapters in use, and keys and values
// at the middle of the generation.
double stepBytes(const std::filesystem::path& engine_dir, const ExecutorWork& work,
                 const std::vector<size_t>& adapter_bytes);

}  // namespace chorus
