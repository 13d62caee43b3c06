// The executor's loop over any StepRunner: requests come in, share steps, and leave with their responses.
//
// Memory may be missing at any moment. What commits a change of state allocates nothing; what must allocate comes
// before it, and a request whose answer cannot be made yet keeps its verdict until it can. So a round that fails
// (round() catches everything) leaves each request, block and slot with exactly one owner, and the next goes on.
//
// Threads: callers put commands into an inbox; one step thread owns everything else (requests, blocks,
// adapters) and takes the inbox between steps. Loader workers put loaded adapters into the loader and ring
// the inbox's bell.
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
#include "runtime/kv_cache/block_manager.h"
#include "runtime/kv_cache/shared_numbers.h"
#include "runtime/queue_shares.h"
#include "runtime/request_checks.h"
#include "runtime/response_queue.h"
#include "runtime/sampling/sampler.h"
#include "runtime/scheduler.h"
#include "runtime/step_builder.h"
#include "runtime/step_runner.h"
#include "runtime/step_times.h"

namespace chorus {

struct CoreOptions {
  RequestLimits requests;
  SchedulerLimits scheduler;
  std::optional<int32_t> max_queue_size;  // requests that wait for their first step
  int32_t iter_stats_max = 1000;
  int32_t request_stats_max = 0;
  bool static_batching = false;  // how statistics are told
  std::optional<executor::LogitsPostProcessorConfig> logits_post_processors;
  int sampler_threads = 1;
  AdapterSize adapter_host_capacity;  // the device level's is the scheduler's adapter_budget
  int64_t adapter_element_bytes = 2;  // of a packed weight, to size adapters that come as tensors
  int adapter_workers = 1;
  std::function<void(const AdapterCacheEvent&)> adapter_observer;  // on the step thread; empty: nobody
  bool block_reuse = true;                                         // between requests
  executor::KvReuseScope reuse_scope = executor::KvReuseScope::kALL;
  int64_t kv_block_bytes = 0;  // of one block over all layers, for statistics
};

class ExecutorCore {
 public:
  using Callback = executor::Executor::ResponseCallback;
  // Waiting requests that claim adapters and are scheduled in a round; those further back wait for the queue
  // to move.
  static constexpr size_t kLookahead = 1024;

  // runner outlives no one: the core owns it. load is called on loader threads until the core is gone.
  ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load);
  ~ExecutorCore();

  // As the methods of executor::Executor that these serve. Thread-safe.
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
  using Requests = std::map<executor::IdType, RequestPtr>;  // by id of the sequence: those of a request are neighbours
  struct Cancel {
    executor::IdType id;
  };
  struct SetAdapter {
    executor::IdType task_id;
    std::shared_ptr<const AdapterSource> source;  // null: unregister
  };
  using Command = std::variant<Requests::node_type, Cancel, SetAdapter>;

  // One of `request`'s sequences, ids from `first_id` on, for each of them.
  void makeSequences(executor::IdType first_id, const executor::Request& request, const Callback& callback,
                     Requests& made) const;
  void post(Command command);
  void ring();

  // The step thread, in the order of a round. executor_core.cc: what comes in and who goes.
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
  // executor_step.cc: one step.
  void plan();
  void applyPlan();
  void pause(ActiveRequest* request);
  bool runStep();
  void buildSequences();
  void sampleAndRespond(std::span<const float> logits, int64_t width);
  void postProcess();
  void failRunning(const std::exception& error) noexcept;
  // executor_blocks.cc: what a request reuses, holds and leaves to others.
  bool reuses(const ActiveRequest& request) const;
  void findRealm(ActiveRequest& request);
  void leaveRealmOf(ActiveRequest& request, uint64_t realm) noexcept;
  void leaveRealm(ActiveRequest& request) noexcept;
  RequestView viewOf(ActiveRequest& request);
  void countFreed();
  void start(ActiveRequest& request) noexcept;
  void extend(ActiveRequest& request);
  void written(ActiveRequest& request);
  void countBlocks();
  // executor_statistics.cc: what is counted of a step.
  void publishStats();
  void joinStep(Clock::time_point begin);
  void beginStats();
  void endStats(Clock::time_point begin);
  void keepRequestStats();

  void respond(ActiveRequest& request, executor::Response response);
  void deliver();
  bool call(const Callback& callback, const executor::Response& response) noexcept;
  void releaseResources(ActiveRequest& request) noexcept;
  void leftQueue(ActiveRequest& request) noexcept;
  // Decides how a request ends; endDecided() answers it and forgets it. The first decision stands.
  void decide(ActiveRequest& request, executor::FinishReason reason) noexcept;
  void decide(ActiveRequest& request, const std::exception& error) noexcept;
  void endDecided();
  executor::Response responseTo(ActiveRequest& request) const;
  // Answers and forgets a request at once. When memory is missing nothing has changed.
  void end(ActiveRequest& request, executor::Response response);
  void forget(ActiveRequest& request) noexcept;

  const CoreOptions options_;
  const LogitsPostProcessors post_processors_;
  std::unique_ptr<StepRunner> runner_;
  ResponseQueue responses_;

  mutable std::mutex mutex_;
  std::condition_variable bell_;
  std::vector<Command> inbox_;
  bool rung_ = false;
  bool shutdown_ = false;
  executor::IdType next_id_ = 1;
  QueueShares queued_;  // enqueued and not yet begun

  mutable std::mutex stats_mutex_;
  std::deque<executor::IterationStats> stats_;
  std::deque<executor::RequestStatsPerIteration> request_stats_;
  executor::KvCacheStats published_kv_stats_;
  executor::AdapterCacheStats published_adapter_stats_;

  // Owned by the step thread.
  SharedNumbers realms_;  // what keys and values depend on besides tokens: adapter content, salt, by scope the client
  SharedNumbers scopes_;  // whose cached blocks are evicted together
  BlockManager blocks_;
  executor::KvCacheStats kv_stats_;
  StepBuilder builder_;
  StepTimes step_times_;
  Sampler sampler_;
  std::vector<int32_t> free_slots_;
  Requests requests_;                    // all that are not answered to their end
  std::vector<ActiveRequest*> running_;  // in the order they started
  FairQueue waiting_;
  int32_t with_deadline_ = 0;
  Clock::time_point first_deadline_ = Clock::time_point::max();  // nobody's passes before it
  bool claims_changed_ = false;                                  // a claim that failed may succeed now
  bool claims_cut_ = false;                                      // more wait than those that may claim
  bool decided_ = false;                                         // somebody has a verdict
  uint64_t claim_rounds_ = 0;
  int refused_calls_ = 0;                      // of one response, for want of memory
  int failed_rounds_ = 0;                      // one after the other
  bool idle_ = true;                           // the last round had nothing to run and leaves nothing to try
  executor::IterationType iterations_ = 0;     // begun; the step in hand has the number below it
  int32_t completed_ = 0;                      // requests, since the last step ended
  std::vector<executor::RequestStats> ended_;  // requests that ran, since the last step ended
  std::vector<executor::Response> outgoing_;
  std::vector<std::pair<Callback, executor::Response>> calls_;
  // Of the step in hand, kept for their memory.
  std::vector<Command> taken_;
  std::vector<ActiveRequest*> candidates_;  // what the plan's indices mean
  std::vector<RequestView> views_;
  SchedulerPlan plan_;
  std::vector<AdapterTicket*> claiming_;
  std::vector<StepSequence> sequences_;
  std::vector<size_t> sampling_;  // sequences that sample
  std::vector<SampleInput> sample_inputs_;
  std::vector<SampleOutput> sample_outputs_;
  std::vector<size_t> scoring_;  // sequences whose prompts' tokens are scored, once a row
  std::vector<SampleInput> score_inputs_;
  std::vector<SampleOutput> score_outputs_;
  std::vector<PostProcessed> post_processed_;  // of the sequences that sample
  std::vector<size_t> post_processed_of_;      // which of them
  std::vector<std::string> sample_errors_;     // of the sequences that sample; empty: none
  executor::IterationStats step_stats_;
  std::vector<uint64_t> step_adapters_;
  std::vector<int32_t> slots_from_back_, freed_from_back_;  // of the running requests

  std::mutex join_mutex_;
  std::unique_ptr<AdapterStore> adapters_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace chorus
