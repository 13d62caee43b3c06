// Statistics of ExecutorCore, per step and per request.
#include <algorithm>
#include <ctime>

#include "base/cpu_features.h"
#include "runtime/executor_core.h"

namespace chorus {
namespace {

// Local time in TensorRT-LLM's format: "11-21-2026 20:15:03.120417".
std::string timestampNow() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%m-%d-%Y %H:%M:%S", &local);
  return fmt::format("{}.{:06}", std::string_view(text, length), micros);
}

}  // namespace

void ExecutorCore::joinStep(Clock::time_point begin) {
  step_stats_ = {};
  step_stats_.iter = iterations_++;
  for (const auto& planned : plan_.sequences) {
    ActiveRequest& request = *candidates_[static_cast<size_t>(planned.request_index)];
    if (!request.stepped(begin, step_stats_.iter)) continue;
    ++step_stats_.numNewActiveRequests;
    step_stats_.newActiveRequestsQueueLatencyMS += request.queueLatencyMs();
  }
}

void ExecutorCore::beginStats() {
  executor::IterationStats& stats = step_stats_;
  stats.numActiveRequests = static_cast<int32_t>(running_.size());
  stats.numQueuedRequests = static_cast<int32_t>(waiting_.numWaiting());
  stats.maxNumActiveRequests = stats.maxBatchSizeStatic = stats.maxBatchSizeRuntime = options_.scheduler.max_batch_size;
  stats.maxNumTokensStatic = stats.maxNumTokensRuntime = options_.scheduler.max_num_tokens;
  std::vector<uint64_t>& adapters = step_adapters_;
  adapters.clear();
  for (const auto& planned : plan_.sequences) {
    (planned.context ? stats.numContextRequests : stats.numGenRequests) += 1;
    if (planned.context) stats.numCtxTokens += planned.num_tokens;
    for (const AdapterUse& use : views_[static_cast<size_t>(planned.request_index)].adapters) {
      adapters.push_back(use.number);
    }
  }
  std::sort(adapters.begin(), adapters.end());
  stats.numAdapters = static_cast<int32_t>(std::unique(adapters.begin(), adapters.end()) - adapters.begin());
  const auto scheduled = static_cast<int32_t>(plan_.sequences.size());
  if (options_.static_batching) {
    stats.staticBatchingStats = {scheduled, stats.numContextRequests, stats.numCtxTokens, stats.numGenRequests,
                                 options_.scheduler.max_batch_size - stats.numGenRequests};
  } else {
    stats.inflightBatchingStats = {scheduled,
                                   stats.numContextRequests,
                                   stats.numGenRequests,
                                   static_cast<int32_t>(plan_.paused.size()),
                                   stats.numCtxTokens,
                                   0,
                                   stats.numGenRequests > 0 ? 1.0f : 0.0f};
  }
  countBlocks();
  publishStats();
  stats.kvCacheStats = kv_stats_;
}

void ExecutorCore::publishStats() {
  const auto adapters = adapters_->stats();
  const std::lock_guard lock(stats_mutex_);
  published_kv_stats_ = kv_stats_;
  published_adapter_stats_ = adapters;
}

void ExecutorCore::endStats(Clock::time_point begin) {
  step_stats_.numCompletedRequests = std::exchange(completed_, 0);
  step_stats_.iterLatencyMS = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  if (options_.request_stats_max > 0) keepRequestStats();
  if (options_.iter_stats_max <= 0) return;
  step_stats_.timestamp = timestampNow();
  step_stats_.cpuMemUsage = residentMemory();
  const std::lock_guard lock(stats_mutex_);
  stats_.push_back(step_stats_);
  while (stats_.size() > static_cast<size_t>(options_.iter_stats_max)) stats_.pop_front();
}

void ExecutorCore::keepRequestStats() {
  executor::RequestStatsPerIteration step;
  step.iter = step_stats_.iter;
  for (const ActiveRequest* request : running_) step.requestStats.push_back(request->stats(step.iter));
  step.requestStats.insert(step.requestStats.end(), ended_.begin(), ended_.end());
  waiting_.forEachWaiting([&](const QueueEntry& entry) {
    step.requestStats.push_back(static_cast<const ActiveRequest&>(entry).stats(step.iter));
  });
  ended_.clear();
  const std::lock_guard lock(stats_mutex_);
  request_stats_.push_back(std::move(step));
  while (request_stats_.size() > static_cast<size_t>(options_.request_stats_max)) request_stats_.pop_front();
}

std::deque<executor::IterationStats> ExecutorCore::takeStats() {
  const std::lock_guard lock(stats_mutex_);
  return std::exchange(stats_, {});
}

std::deque<executor::RequestStatsPerIteration> ExecutorCore::takeRequestStats() {
  const std::lock_guard lock(stats_mutex_);
  return std::exchange(request_stats_, {});
}

}  // namespace chorus
