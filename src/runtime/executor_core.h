// The executor's loop over any StepRunner. A round of it admits requests, runs a step and sends responses; its three
// parts are Admission, StepLoop and Delivery.
//
// Any allocation may fail. Code that commits a change of state does not allocate; everything that must allocate runs
// before it. A request whose response cannot be built yet keeps its verdict until it can. So after a failed round
// (loop() catches everything) each request, block and slot still has exactly one owner, and the next round continues.
//
// Threads: one step thread runs the rounds and owns the requests, blocks and adapters. Callers reach it through the
// inbox of Admission, and take responses and statistics from Delivery and ExecutorStatistics.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "chorus/executor.h"
#include "runtime/admission.h"
#include "runtime/core_options.h"
#include "runtime/delivery.h"
#include "runtime/executor_statistics.h"
#include "runtime/request_table.h"
#include "runtime/step_loop.h"

namespace chorus {

class ExecutorCore {
 public:
  using Callback = Request::Callback;
  static constexpr size_t kLookahead = Admission::kLookahead;

  // load is called on loader threads until the destructor returns.
  ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load);
  ~ExecutorCore();

  // Implement the methods of executor::Executor (chorus/executor.h). Thread-safe.
  std::vector<executor::IdType> enqueue(std::span<const executor::Request> requests, const Callback& callback) {
    return admission_.enqueue(requests, callback, delivery_.responses());
  }
  void cancel(executor::IdType id) { admission_.cancel(id); }
  void registerAdapter(executor::IdType task_id, std::shared_ptr<const AdapterSource> source) {
    admission_.registerAdapter(task_id, std::move(source));
  }
  void unregisterAdapter(executor::IdType task_id) { admission_.unregisterAdapter(task_id); }
  void loadAdapter(executor::IdType task_id, bool pin, AdapterHolds::Done done) {
    admission_.loadAdapter(task_id, pin, std::move(done));
  }
  void unpinAdapter(executor::IdType task_id) { admission_.unpinAdapter(task_id); }
  void moveAdapterPin(executor::IdType from, executor::IdType to) { admission_.moveAdapterPin(from, to); }
  std::optional<executor::AdapterState> adapterState(executor::IdType task_id) {
    return admission_.adapterState(task_id);
  }
  std::vector<executor::AdapterState> adapterStates() { return admission_.adapterStates(); }
  void shutdown();
  bool acceptsRequests() const { return admission_.acceptsRequests(); }
  ResponseQueue& responses() { return delivery_.responses(); }
  std::deque<executor::IterationStats> takeStats() { return statistics_.takeSteps(); }
  std::deque<executor::RequestStatsPerIteration> takeRequestStats() { return statistics_.takeRequests(); }
  executor::KvCacheStats kvCacheStats() const { return statistics_.kvCache(); }
  executor::AdapterCacheStats adapterCacheStats() const { return statistics_.adapterCache(); }
  executor::LiveBatch liveBatch() const { return statistics_.liveBatch(); }
  const CoreOptions& options() const { return options_; }

 private:
  using Clock = Request::Clock;

  // Step thread only.
  void loop();
  void round();
  void roundFailed(const std::exception_ptr& error) noexcept;
  // round_begin: when the round began.
  void step(Clock::time_point round_begin);
  void publish();
  // Ends requests that have a verdict: at once what runs, else as many sequences as this round may still end, one of
  // each client in turn.
  void endDecided();
  // Ends a sequence of a request that has a verdict, and with its last one the request.
  void endDecided(Sequence& sequence);
  void endDecided(Request& request);
  // Answers a sequence that has new tokens, and removes it if it is complete.
  void answer(Sequence& sequence);
  // Adds the sequence's next response. If it throws std::bad_alloc, nothing has changed.
  void respond(const Sequence& sequence, executor::FinishReason reason);
  // Ends a sequence that the strategy dropped.
  void drop(Sequence& sequence);
  // Removes a sequence and all that it holds.
  void remove(Sequence& sequence) noexcept;
  // Removes a request without sequences.
  void remove(Request& request) noexcept;

  const CoreOptions options_;
  const LogitsPostProcessors post_processors_;
  // Used by the step thread, except for the functions of the parts that are marked as thread-safe.
  const std::unique_ptr<StepRunner> runner_;  // before admission_, because loading adapters may use the network
  RequestTable requests_;
  Admission admission_;
  StepLoop steps_;
  Delivery delivery_;
  ExecutorStatistics statistics_;
  int32_t ends_left_ = 0;  // sequences that this round may still end
  int failed_rounds_ = 0;  // consecutive
  bool idle_ = true;       // the last round ran no step and ended all that has a verdict; no claim is to be retried

  std::mutex join_mutex_;
  std::thread thread_;  // last, because it uses all members above
};

}  // namespace chorus
