#include "runtime/executor_statistics.h"

#include <algorithm>
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

void addAdapters(const Request& request, std::vector<executor::IdType>& adapters) {
  if (request.lora) adapters.push_back(request.lora->getTaskId());
  for (const executor::WeightedLora& term : request.composition) adapters.push_back(term.taskId);
}

// Whether the levels have had no event between the two.
bool sameAdapters(const executor::AdapterCacheStats& a, const executor::AdapterCacheStats& b) {
  const auto same = [](const executor::AdapterCacheLevelStats& x, const executor::AdapterCacheLevelStats& y) {
    return x.residentAdapters == y.residentAdapters && x.pinnedAdapters == y.pinnedAdapters && x.hits == y.hits &&
           x.misses == y.misses && x.evictions == y.evictions;
  };
  return same(a.host, b.host) && same(a.device, b.device) && a.loads == b.loads && a.failedLoads == b.failedLoads;
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

executor::LiveBatch ExecutorStatistics::liveBatch() const {
  executor::LiveBatch batch;
  batch.maxBatchSize = options_.scheduler.max_batch_size;
  const std::lock_guard lock(mutex_);
  for (const Running& running : running_) {
    executor::RunningSequence& sequence = batch.running.emplace_back(running.sequence);
    sequence.adapters.assign(running_adapters_.begin() + static_cast<ptrdiff_t>(running.adapters_begin),
                             running_adapters_.begin() + static_cast<ptrdiff_t>(running.adapters_end));
  }
  batch.numWaiting = num_waiting_;
  batch.totals = totals_;
  batch.kvCache = kv_cache_;
  batch.adapterCache = adapter_cache_;
  batch.adapters = adapters_;
  batch.waitingAdapters = waiting_adapters_;
  return batch;
}

void ExecutorStatistics::publishBatch(std::span<Sequence* const> running, const FairQueue& waiting,
                                      executor::IterationType step, int64_t pauses) {
  const std::lock_guard lock(mutex_);
  num_waiting_ = static_cast<int32_t>(waiting.numWaiting());
  totals_.preemptions = pauses;
  running_.clear();
  running_adapters_.clear();
  for (const Sequence* sequence : running) {
    const size_t begin = running_adapters_.size();
    addAdapters(sequence->request, running_adapters_);
    running_.push_back({{.requestId = sequence->request.id,
                         .clientId = sequence->request.client_id,
                         .generates = sequence->generates(),
                         .inStep = sequence->request.answerOf(*sequence).tookPartIn(step),
                         .promptTokens = sequence->promptLength(),
                         .computedTokens = sequence->numCached(),
                         .generatedTokens = sequence->numGenerated(),
                         .adapters = {}},
                        begin,
                        running_adapters_.size()});
  }
}

void ExecutorStatistics::publishAdapters(const AdapterStore& adapters, const FairQueue& waiting, bool idle) {
  constexpr std::chrono::milliseconds kPause{100};
  const executor::AdapterCacheStats stats = adapters.stats();
  if (sameAdapters(stats, published_) && published_waiting_ == waiting.numWaiting()) return;
  const auto now = Clock::now();
  if (!idle && now - published_at_ < kPause) return;
  {
    const std::lock_guard lock(mutex_);
    adapters_.clear();
    adapters.forEachResident([this](const executor::ResidentAdapter& adapter) { adapters_.push_back(adapter); });
    waiting_adapters_.clear();
    waiting.forEachWaiting([this](const QueueEntry& entry) {
      addAdapters(static_cast<const Sequence&>(entry).request, waiting_adapters_);
    });
    std::ranges::sort(waiting_adapters_);
    const auto [first, last] = std::ranges::unique(waiting_adapters_);
    waiting_adapters_.erase(first, last);
  }
  published_ = stats;
  published_waiting_ = waiting.numWaiting();
  published_at_ = now;
}

void ExecutorStatistics::countStep(const executor::IterationStats& step, size_t advanced, const StepMoments& moments) {
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const std::lock_guard lock(mutex_);
  ++totals_.steps;
  totals_.schedulingSeconds += seconds(moments.begin, moments.network_began);
  totals_.networkSeconds += seconds(moments.network_began, moments.network_ended);
  // A step that failed has not sampled.
  const auto sampled = std::max(moments.sampled, moments.network_ended);
  totals_.samplingSeconds += seconds(moments.network_ended, sampled);
  totals_.deliverySeconds += seconds(sampled, moments.end);
  totals_.contextTokens += step.numCtxTokens;
  totals_.generatedTokens += static_cast<int64_t>(advanced);
  totals_.contextSequences += step.numContextRequests;
  totals_.generationSequences += step.numGenRequests;
  totals_.adapters += step.numAdapters;
}

void ExecutorStatistics::ended(const Sequence& sequence, executor::IterationType step) noexcept {
  if (options_.request_stats_max <= 0) return;
  try {
    ended_.push_back(sequence.request.stats(sequence, step));
    ended_.back().stage = executor::RequestStage::kGENERATION_COMPLETE;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
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
