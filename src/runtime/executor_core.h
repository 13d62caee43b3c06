// The executor's loop over any StepRunner: admits requests, batches them into steps and sends their responses.
//
// Any allocation may fail. Code that commits a change of state does not allocate; everything that must allocate runs
// before it. A request whose response cannot be built yet keeps its verdict until it can. So after a failed round
// (loop() catches everything) each request, block and slot still has exactly one owner, and the next round continues.
//
// Threads: callers put commands into an inbox. One step thread owns the requests, blocks and adapters, and takes the
// inbox between steps. Loader workers pass loaded adapters to the AdapterLoader and wake the step thread with wake().
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "chorus/executor.h"
#include "runtime/active_request.h"
#include "runtime/adapter_cache/adapter_store.h"
#include "runtime/decoding/sampler.h"
#include "runtime/kv_cache/block_manager.h"
#include "runtime/kv_cache/shared_numbers.h"
#include "runtime/queue_shares.h"
#include "runtime/request_checks.h"
#include "runtime/response_queue.h"
#include "runtime/scheduler.h"
#include "runtime/step_builder.h"
#include "runtime/step_runner.h"
#include "runtime/step_times.h"

namespace chorus {

struct CoreOptions {
  RequestLimits requests;
  SchedulerLimits scheduler;
  std::optional<int32_t> max_queue_size;  // sequences that wait for their first step
  int32_t iter_stats_max = 1000;
  int32_t request_stats_max = 0;
  bool static_batching = false;  // fills staticBatchingStats instead of inflightBatchingStats
  std::optional<executor::LogitsPostProcessorConfig> logits_post_processors;
  int sampler_threads = 1;
  AdapterSize adapter_host_capacity;  // the device level's capacity is scheduler.adapter_budget
  int64_t adapter_element_bytes = 2;  // bytes per packed weight, to size adapters that are sent as tensors
  int adapter_workers = 1;
  std::function<void(const AdapterCacheEvent&)> adapter_observer;  // called on the step thread; may be empty
  bool block_reuse = true;                                         // between requests
  executor::KvReuseScope reuse_scope = executor::KvReuseScope::kALL;
  int64_t kv_block_bytes = 0;  // bytes of one block over all layers, for statistics
};

class ExecutorCore {
 public:
  using Callback = executor::Executor::ResponseCallback;
  // In a round, only this many waiting sequences at the front of the queue claim adapters and are candidates to start.
  static constexpr size_t kLookahead = 1024;

  // load is called on loader threads until the destructor returns.
  ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load);
  ~ExecutorCore();

  // Implement the methods of executor::Executor (chorus/executor.h). Thread-safe.
  std::vector<executor::IdType> enqueue(std::span<const executor::Request> requests, const Callback& callback);
  void cancel(executor::IdType id);
  void registerAdapter(executor::IdType task_id, std::shared_ptr<const AdapterSource> source);
  void unregisterAdapter(executor::IdType task_id);
  void shutdown();
  bool acceptsRequests() const;
  ResponseQueue& responses() { return responses_; }
  std::deque<executor::IterationStats> takeStats();
  std::deque<executor::RequestStatsPerIteration> takeRequestStats();
  executor::KvCacheStats kvCacheStats() const;
  executor::AdapterCacheStats adapterCacheStats() const;
  const CoreOptions& options() const { return options_; }

 private:
  using Clock = ActiveRequest::Clock;
  using RequestPtr = std::unique_ptr<ActiveRequest>;
  using Requests = std::map<executor::IdType, RequestPtr>;  // by sequence id: a request's sequences are adjacent
  struct Cancel {
    executor::IdType id;
  };
  struct SetAdapter {
    executor::IdType task_id;
    std::shared_ptr<const AdapterSource> source;  // null: unregister
  };
  using Command = std::variant<Requests::node_type, Cancel, SetAdapter>;

  // Adds to `made` one ActiveRequest for each sequence of `request`, with ids from first_id on.
  void makeSequences(executor::IdType first_id, const executor::Request& request, const Callback& callback,
                     Requests& made) const;
  void post(Command command);
  void wake();

  // Step thread only, in the order of a round.
  // executor_core.cc: commands, loaded adapters, deadlines and adapter claims.
  void loop();
  void round();
  void roundFailed(const std::exception_ptr& error) noexcept;
  bool waitForWork();
  void takeInbox() noexcept;
  void setAdapter(const SetAdapter& adapter) noexcept;
  void admit(Requests::node_type node) noexcept;
  void cancelNow(executor::IdType id) noexcept;
  void takeLoadedAdapters();
  void endOverdue();
  void claimAdapters();
  void claimOf(ActiveRequest& first);
  void checkTokens(ActiveRequest& request) const;
  void queueMoved();
  // executor_step.cc: schedules and runs one step.
  void plan();
  void applyPlan();
  void pause(ActiveRequest* request);
  bool runStep();
  void buildSequences();
  void sampleAndRespond(std::span<const float> logits, int64_t width);
  void postProcess();
  void failRunning(const std::exception& error) noexcept;
  // executor_blocks.cc: reuse, allocation and release of KV blocks.
  bool reuses(const ActiveRequest& request) const;
  void findCacheNamespace(ActiveRequest& request);
  void leaveCacheNamespaceOf(ActiveRequest& request, uint64_t cache_namespace) noexcept;
  void leaveCacheNamespace(ActiveRequest& request) noexcept;
  RequestView viewOf(ActiveRequest& request);
  void countFreed();
  void start(ActiveRequest& request) noexcept;
  void extend(ActiveRequest& request);
  void commitBlocks(ActiveRequest& request);
  void countBlocks();
  // executor_statistics.cc: statistics of a step.
  void publishStats();
  void joinStep(Clock::time_point begin);
  void beginStats();
  void endStats(Clock::time_point begin);
  void keepRequestStats();

  // executor_answers.cc: responses and the end of requests.
  void respond(ActiveRequest& request, executor::Response response);
  void deliver();
  bool call(const Callback& callback, const executor::Response& response) noexcept;
  void releaseResources(ActiveRequest& request) noexcept;
  void leftQueue(ActiveRequest& request) noexcept;
  // Sets the request's verdict unless it has one. endDecided() then answers and removes the request.
  void decide(ActiveRequest& request, executor::FinishReason reason) noexcept;
  void decide(ActiveRequest& request, const std::exception& error) noexcept;
  void endDecided();
  executor::Response responseTo(ActiveRequest& request) const;
  // Answers and removes a request at once. If it throws std::bad_alloc, nothing has changed.
  void end(ActiveRequest& request, executor::Response response);
  void forget(ActiveRequest& request) noexcept;

  const CoreOptions options_;
  const LogitsPostProcessors post_processors_;
  std::unique_ptr<StepRunner> runner_;
  ResponseQueue responses_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> inbox_;
  bool woken_ = false;
  bool shutdown_ = false;
  executor::IdType next_id_ = 1;
  QueueShares queued_;  // sequences that were enqueued and have not started

  mutable std::mutex stats_mutex_;
  std::deque<executor::IterationStats> stats_;
  std::deque<executor::RequestStatsPerIteration> request_stats_;
  executor::KvCacheStats published_kv_stats_;
  executor::AdapterCacheStats published_adapter_stats_;

  // The members from here to join_mutex_ are owned by the step thread.

  // Cache namespaces: what keys and values depend on besides the tokens, which is adapter content and salt. With a
  // narrower reuse_scope also the client.
  SharedNumbers cache_namespaces_;
  SharedNumbers scopes_;  // eviction scopes: cached blocks of one scope are evicted together
  BlockManager blocks_;
  executor::KvCacheStats kv_stats_;
  StepBuilder builder_;
  StepTimes step_times_;
  Sampler sampler_;
  std::vector<int32_t> free_slots_;
  Requests requests_;                    // all sequences that have not ended
  std::vector<ActiveRequest*> running_;  // in the order they started
  FairQueue waiting_;
  int32_t with_deadline_ = 0;
  Clock::time_point first_deadline_ = Clock::time_point::max();  // no deadline is earlier
  bool claims_changed_ = false;                                  // a claim that failed may succeed now
  bool claims_cut_ = false;                                      // more than kLookahead sequences wait
  bool decided_ = false;                                         // endDecided() has work
  uint64_t claim_rounds_ = 0;
  int refused_calls_ = 0;                      // consecutive std::bad_alloc from calling back one response
  int failed_rounds_ = 0;                      // consecutive
  bool idle_ = true;                           // the last round ran no step, and no claim is to be retried
  executor::IterationType iterations_ = 0;     // steps begun; the current step's number is iterations_ - 1
  int32_t completed_ = 0;                      // requests completed since the last step ended
  std::vector<executor::RequestStats> ended_;  // of requests that ran and ended since the last step ended
  std::vector<executor::Response> outgoing_;
  std::vector<std::pair<Callback, executor::Response>> calls_;
  // Scratch of the current step; members so that their memory is reused.
  std::vector<Command> taken_;
  std::vector<ActiveRequest*> candidates_;  // the plan's indices refer to these
  std::vector<RequestView> views_;
  SchedulerPlan plan_;
  std::vector<AdapterLease*> claiming_;
  std::vector<StepSequence> sequences_;
  std::vector<size_t> sampling_;  // indices of the plan's sequences that sample
  std::vector<SampleInput> sample_inputs_;
  std::vector<SampleOutput> sample_outputs_;
  std::vector<size_t> scoring_;  // for each of score_inputs_, the index of the plan's sequence
  std::vector<SampleInput> score_inputs_;
  std::vector<SampleOutput> score_outputs_;
  std::vector<PostProcessed> post_processed_;  // sampling sequences that have a post-processor
  std::vector<size_t> post_processed_of_;      // their indices in sampling_
  std::vector<std::string> sample_errors_;     // by index in sampling_; empty: no error
  executor::IterationStats step_stats_;
  std::vector<uint64_t> step_adapters_;
  std::vector<int32_t> slots_from_back_, freed_from_back_;  // slots of running_ in reverse, blocks that each frees

  std::mutex join_mutex_;
  std::unique_ptr<AdapterStore> adapters_;
  std::thread thread_;  // last, because it uses all members above
};

}  // namespace chorus
