#include "cli/bench/throughput.h"

#include <algorithm>

#include "engine/rank_group.h"

namespace chorus {
namespace {

double whenAllStarted(const TokenTimes& times) {
  double all_started = 0;
  for (const auto& request : times) all_started = std::max(all_started, request.front());
  return all_started;
}

}  // namespace

ThroughputResult throughputOf(const TokenTimes& times, const ExecutorWork& work) {
  const double all_started = whenAllStarted(times);
  double end = 0;
  ptrdiff_t late_tokens = 0;
  for (const auto& request : times) {
    end = std::max(end, request.back());
    late_tokens += request.end() - std::upper_bound(request.begin(), request.end(), all_started);
  }
  ThroughputResult result{.context_tokens_per_s = static_cast<double>(work.batch) * work.prompt / all_started};
  if (late_tokens > 0) result.generation_tokens_per_s = static_cast<double>(late_tokens) / (end - all_started);
  return result;
}

ThroughputResult throughputOf(const std::vector<TokenTimes>& passes, const ExecutorWork& work) {
  std::vector<double> context, generation;
  for (const TokenTimes& times : passes) {
    const ThroughputResult result = throughputOf(times, work);
    context.push_back(result.context_tokens_per_s);
    generation.push_back(result.generation_tokens_per_s);
  }
  return {medianOf(context), medianOf(generation)};
}

LatencyResult latencyOf(const std::vector<TokenTimes>& passes) {
  std::vector<double> first, step;
  for (const TokenTimes& times : passes) {
    const double all_started = whenAllStarted(times);
    for (const auto& request : times) {
      first.push_back(request.front());
      for (size_t i = 1; i < request.size(); ++i) {
        if (request[i - 1] >= all_started) step.push_back(request[i] - request[i - 1]);
      }
    }
  }
  return {distributionOf(std::move(first)), distributionOf(std::move(step))};
}

double stepBytes(const std::filesystem::path& engine_dir, const ExecutorWork& work,
                 const std::vector<size_t>& adapter_bytes) {
  const auto engines = RankGroup::loadEngines(engine_dir);
  double bytes = 0;
  for (const auto& engine : engines) bytes += static_cast<double>(engine->stepBytes(work.batch));
  const int used = std::min(work.adapters, work.batch);
  for (int i = 0; i < used; ++i) bytes += static_cast<double>(adapter_bytes[static_cast<size_t>(i)]);
  const Engine& engine = *engines.front();
  const auto kv_per_token = static_cast<double>(Session::kvCache(engine.config(), engine.buildConfig()).token_bytes);
  return bytes + work.batch * (work.prompt + work.new_tokens / 2.0) * kv_per_token;
}

}  // namespace chorus
