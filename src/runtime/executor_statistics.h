// Statistics that clients take from the executor: of steps, of requests per step, and of the caches.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/core_options.h"
#include "runtime/fair_queue.h"
#include "runtime/request.h"

namespace chorus {

class ExecutorStatistics {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ExecutorStatistics(const CoreOptions& options) : options_(options) {}

  // Thread-safe.
  std::deque<executor::IterationStats> takeSteps();
  std::deque<executor::RequestStatsPerIteration> takeRequests();
  executor::KvCacheStats kvCache() const;
  executor::AdapterCacheStats adapterCache() const;
  void publish(const executor::KvCacheStats& kv_cache, const executor::AdapterCacheStats& adapters);

  // The step thread alone calls these.

  // A running sequence ends in step `step` or after it. Without memory, the statistics lack it.
  void ended(const Sequence& sequence, executor::IterationType step) noexcept;
  // Completes and keeps the statistics of a step that began at `begin`. running, waiting: the sequences after the step.
  void endStep(executor::IterationStats step, Clock::time_point begin, std::span<Sequence* const> running,
               const FairQueue& waiting);

 private:
  void keepRequests(executor::IterationType step, std::span<Sequence* const> running, const FairQueue& waiting);

  const CoreOptions& options_;
  std::vector<executor::RequestStats> ended_;  // of sequences that ran and ended since the last step ended

  mutable std::mutex mutex_;
  // These members are protected by the mutex.
  std::deque<executor::IterationStats> steps_;
  std::deque<executor::RequestStatsPerIteration> requests_;
  executor::KvCacheStats kv_cache_;
  executor::AdapterCacheStats adapter_cache_;
};

}  // namespace chorus
