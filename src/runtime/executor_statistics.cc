#include "runtime/executor_statistics.h"

#include <ctime>
#include <new>
#include <utility>

#include "base/cpu_features.h"

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

std::deque<executor::IterationStats> ExecutorStatistics::takeSteps() {
  const std::lock_guard lock(mutex_);
  return std::exchange(steps_, {});
}

std::deque<executor::RequestStatsPerIteration> ExecutorStatistics::takeRequests() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

executor::KvCacheStats ExecutorStatistics::kvCache() const {
  const std::lock_guard lock(mutex_);
  return kv_cache_;
}

executor::AdapterCacheStats ExecutorStatistics::adapterCache() const {
  const std::lock_guard lock(mutex_);
  return adapter_cache_;
}

void ExecutorStatistics::publish(const executor::KvCacheStats& kv_cache, const executor::AdapterCacheStats& adapters) {
  const std::lock_guard lock(mutex_);
  kv_cache_ = kv_cache;
  adapter_cache_ = adapters;
}

void ExecutorStatistics::ended(const Sequence& sequence, executor::IterationType step) noexcept {
  if (options_.request_stats_max <= 0) return;
  try {
    ended_.push_back(sequence.request.stats(sequence, step));
    ended_.back().stage = executor::RequestStage::kGENERATION_COMPLETE;
  } catch (const std::bad_alloc&) {
    // The statistics lack this sequence.
  }
}

void ExecutorStatistics::endStep(executor::IterationStats step, Clock::time_point begin,
                                 std::span<Sequence* const> running, const FairQueue& waiting) {
  step.iterLatencyMS = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  if (options_.request_stats_max > 0) keepRequests(step.iter, running, waiting);
  if (options_.iter_stats_max <= 0) return;
  step.timestamp = timestampNow();
  step.cpuMemUsage = residentMemory();
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
  while (steps_.size() > static_cast<size_t>(options_.iter_stats_max)) steps_.pop_front();
}

void ExecutorStatistics::keepRequests(executor::IterationType step, std::span<Sequence* const> running,
                                      const FairQueue& waiting) {
  executor::RequestStatsPerIteration stats;
  stats.iter = step;
  for (const Sequence* sequence : running) stats.requestStats.push_back(sequence->request.stats(*sequence, step));
  stats.requestStats.insert(stats.requestStats.end(), ended_.begin(), ended_.end());
  waiting.forEachWaiting([&](const QueueEntry& entry) {
    const auto& sequence = static_cast<const Sequence&>(entry);
    stats.requestStats.push_back(sequence.request.stats(sequence, step));
  });
  ended_.clear();
  const std::lock_guard lock(mutex_);
  requests_.push_back(std::move(stats));
  while (requests_.size() > static_cast<size_t>(options_.request_stats_max)) requests_.pop_front();
}

}  // namespace chorus
