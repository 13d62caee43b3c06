// Statistics that clients take from the executor: of steps, of requests per step, and of the caches.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "chorus/live_batch.h"
#include "runtime/adapter_cache/adapter_store.h"
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

  executor::LiveBatch liveBatch() const;

  // The step thread alone calls these.

  // The running sequences and the number of waiting ones, in or after step `step`.
  void publishBatch(std::span<Sequence* const> running, const FairQueue& waiting, executor::IterationType step,
                    int64_t pauses);
  // The resident adapters and those that are waited for, if they may have changed. While steps run, at most every
  // 100 ms, because the lists may be long. idle: the step thread is about to wait.
  void publishAdapters(const AdapterStore& adapters, const FairQueue& waiting, bool idle);
  // The moments that divide a step, in order.
  struct StepMoments {
    Clock::time_point begin, network_began, network_ended, sampled, end;
  };
  // Adds a step to the totals. advanced: sequences that got a token.
  void countStep(const executor::IterationStats& step, size_t advanced, const StepMoments& moments);

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
  // A running sequence; its adapters are running_adapters_[adapters_begin, adapters_end).
  struct Running {
    executor::RunningSequence sequence;
    size_t adapters_begin = 0, adapters_end = 0;
  };
  std::vector<Running> running_;  // flat, so that publishing allocates nothing once the vectors have grown
  std::vector<executor::IdType> running_adapters_;
  int32_t num_waiting_ = 0;
  executor::StepTotals totals_;
  std::vector<executor::ResidentAdapter> adapters_;
  std::vector<executor::IdType> waiting_adapters_;

  // These members belong to the step thread.
  executor::AdapterCacheStats published_;  // when adapters_ was published
  size_t published_waiting_ = 0;
  Clock::time_point published_at_;
};

}  // namespace chorus
