// The executor's first part: from the callers' threads into the queue.
//
// Callers put requests and commands into an inbox. Between two steps the step thread takes the next of them, leases the
// requests' adapters and queues their sequences, and claims adapters for those at the front of the queue. Loader
// workers pass loaded adapters to the AdapterLoader and wake the step thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/adapter_cache/adapter_holds.h"
#include "runtime/adapter_cache/adapter_store.h"
#include "runtime/adapter_cache/claim_shares.h"
#include "runtime/core_options.h"
#include "runtime/fair_queue.h"
#include "runtime/inbox.h"
#include "runtime/queue_shares.h"
#include "runtime/request_table.h"
#include "runtime/response_queue.h"

namespace chorus {

class Admission {
 public:
  using Clock = Request::Clock;
  using Callback = Request::Callback;
  // In a round, only this many waiting sequences at the front of the queue claim adapters and are candidates to start.
  static constexpr size_t kLookahead = 1024;
  // The step thread gives a caller of adapterStates() at most this many states between two steps, in about 0.1 ms.
  static constexpr size_t kStatesPerStep = 256;

  // load is called on loader threads until the destructor returns. The references must outlive this object.
  Admission(const CoreOptions& options, const LogitsPostProcessors& post_processors, RequestTable& requests,
            LoadAdapter load, ComposeAdapters compose);

  // Thread-safe. They implement the methods of executor::Executor (chorus/executor.h). responses: where the responses
  // are awaited if there is no callback.
  std::vector<executor::IdType> enqueue(std::span<const executor::Request> requests, const Callback& callback,
                                        ResponseQueue& responses);
  void cancel(executor::IdType id);
  void registerAdapter(executor::IdType task_id, std::shared_ptr<const AdapterSource> source);
  void unregisterAdapter(executor::IdType task_id);
  void loadAdapter(executor::IdType task_id, bool pin, AdapterHolds::Done done);
  void unpinAdapter(executor::IdType task_id);
  void moveAdapterPin(executor::IdType from, executor::IdType to);
  std::optional<executor::AdapterState> adapterState(executor::IdType task_id);
  std::vector<executor::AdapterState> adapterStates();
  bool acceptsRequests() const;
  // Refuses later requests and ends waitForWork().
  void shutdown();

  // The step thread alone uses what follows.

  // If `idle`, blocks until there is a request, a command, a loaded adapter or a deadline. Then takes over the next of
  // the inbox. Returns false after shutdown().
  bool waitForWork(bool idle);
  // Carries out the commands and admits the requests that waitForWork() took over.
  void takeInbox() noexcept;
  // After shutdown(): carries out and admits all that is left.
  void takeRest() noexcept;
  void takeLoadedAdapters();
  // Decides on requests whose deadline has passed.
  void endOverdue();
  // Claims adapters for waiting sequences, in the order of the queue.
  void claimAdapters();
  // Ends the loads and pins of loadAdapter(): whoever waits gets an error.
  void endHolds() noexcept;
  // Whether claimAdapters() has work.
  bool claimsPending() const { return claims_changed_; }

  const FairQueue& queue() const { return queue_; }
  // Iterates over the waiting sequences in order of turns, see FairQueue.
  void beginTurns() { queue_.beginTurns(); }
  Sequence* nextTurn() { return static_cast<Sequence*>(queue_.nextTurn()); }
  void endTurnsOf(const Sequence& sequence) { queue_.endTurnsOf(sequence); }
  const AdapterStore& adapters() const { return adapters_; }

  // Counts tokens that a sequence was served, see FairQueue.
  void charge(const Sequence& sequence, double tokens) noexcept { queue_.charge(sequence, tokens); }

  // Puts the adapters of a sequence that is about to start on the device. If it throws, nothing has changed.
  void prepareStart(Sequence& sequence) { adapters_.ensure(sequence.adapter); }
  // started() counts a waiting sequence as running; call it before Sequence::start(). paused() puts a running sequence
  // back into the queue and takes its adapters off the device.
  void started(Sequence& sequence) noexcept;
  void paused(Sequence& sequence) noexcept;
  // Queues a sequence that continues another one of its request. If it throws, nothing has changed.
  void enterFork(Sequence& sequence);
  // Removes a sequence that ends from the queue and releases its adapters. StepLoop::release() releases its blocks.
  void release(Sequence& sequence) noexcept;
  // Removes a waiting sequence of a request with a verdict from the queue, so that it cannot start. Until release() it
  // keeps its adapters, and its place in the limit of the queue. May be called again.
  void withdraw(Sequence& sequence) noexcept;
  // Call it for a request without sequences before it is removed.
  void ended(const Request& request) noexcept;

 private:
  std::unique_ptr<Request> make(executor::IdType id, const executor::Request& asked,
                                std::shared_ptr<const Callback> callback) const;
  void post(Inbox::Command command);
  void wake();
  void carryOut(Inbox::Command& command) noexcept;
  // Waits for the step thread's answer. Empty after shutdown.
  std::vector<executor::AdapterState> askStates(executor::IdType first, size_t most);
  void setAdapter(const Inbox::SetAdapter& adapter) noexcept;
  void answer(Inbox::AskedStates& asked) const noexcept;
  void admit(Inbox::Node node) noexcept;
  void claimOf(Sequence& first);
  void countClaims(const Sequence& sequence);
  void checkTokens(const Sequence& sequence) const;
  void enqueue(Sequence& sequence);
  void leaveShares(const Request& request, int32_t sequences) noexcept;

  const CoreOptions& options_;
  const LogitsPostProcessors& post_processors_;
  RequestTable& requests_;

  std::mutex listing_;  // held by the caller of adapterStates()
  mutable std::mutex mutex_;
  // These members are protected by the mutex.
  std::condition_variable wake_;
  Inbox inbox_;
  bool woken_ = false;
  bool shutdown_ = false;
  executor::IdType next_id_ = 1;
  QueueShares shares_;  // sequences that were enqueued and have not started

  // These members belong to the step thread.
  Inbox::Taken taken_;
  FairQueue queue_;
  int32_t with_deadline_ = 0;
  Clock::time_point first_deadline_ = Clock::time_point::max();  // no deadline is earlier
  bool claims_changed_ = false;                                  // a claim that failed may succeed now
  bool claims_cut_ = false;                                      // more than kLookahead sequences wait
  uint64_t claim_rounds_ = 0;
  std::vector<AdapterLease*> claiming_;
  ClaimShares claim_shares_;
  bool clients_share_adapters_ = false;  // in this round of claims
  AdapterHolds holds_;
  AdapterStore adapters_;  // last, because its workers call wake()
};

}  // namespace chorus
