// Adapters that callers load into the host level, or pin there, although no request uses them.
//
// A hold is a lease that belongs to no request. It claims its adapter as a request does. A plain hold is released once
// the adapter is loaded, which then can be evicted like any other. A pin is kept: it follows its task, so that new
// content that is registered under the task id is loaded and pinned in place of the old one.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <vector>

#include "runtime/adapter_cache/adapter_store.h"

namespace chorus {

// Not thread-safe: used by the step thread alone.
class AdapterHolds {
 public:
  // Called once with null when the adapter is loaded, else with the Error that prevents it. It must not throw.
  using Done = std::function<void(std::exception_ptr error)>;

  // A hold has at most this many callers that wait; others get Error(kBusy).
  static constexpr size_t kMaxWaiting = 64;

  // most_pinned: limit on the total size of the pinned adapters. The store must outlive the object.
  AdapterHolds(AdapterStore& store, AdapterSize most_pinned) : store_(store), most_pinned_(most_pinned) {}

  // Loads the adapter of a task; with `pin`, it is kept until unpin(). The Errors are those of AdapterStore::lease(),
  // claim() and give(); kInvalidArgument if the pinned adapters would exceed the limit. done: may be null.
  void load(uint64_t task_id, bool pin, Done done) noexcept;
  void unpin(uint64_t task_id) noexcept;
  // Unpins `from`, and pins `to` if `from` was pinned.
  void movePin(uint64_t from, uint64_t to) noexcept;
  // Call it after the task was registered again or unregistered. If it is unregistered while a hold's load runs, those
  // who wait get that load's Error, or kNotFound if the load succeeds or ends with kConflict.
  void renewed(uint64_t task_id) noexcept;

  // Claims adapters for holds that have none, in a round of claims (AdapterStore::beginClaims).
  void claim() noexcept;
  // Call it for each AdapterStore::takeLoaded().
  void give(const AdapterLoad& load) noexcept;
  // Ends all holds: whoever waits gets the error.
  void end(const std::exception_ptr& error) noexcept;

  // Takes the holds out of a state's users, and sets whether the adapter is pinned.
  void complete(executor::AdapterState& state) const;

 private:
  struct Waiting {
    Done done;
    bool pin;
  };
  struct Hold {
    AdapterLease lease;
    bool pinned = false;
    bool gone = false;  // the task was unregistered while the hold's load ran
    std::vector<Waiting> waiting;
  };
  using Holds = std::map<uint64_t, Hold>;

  // Throws Error if the hold's adapter, with the size that is known now, does not fit beside the pinned ones.
  void checkPinned(const Hold& hold) const;
  // Call loaded() when the hold's adapter is loaded, drop() when it cannot be loaded. Both return the next hold.
  Holds::iterator loaded(Holds::iterator at) noexcept;
  Holds::iterator drop(Holds::iterator at, const std::exception_ptr& error) noexcept;
  void release(Hold& hold) noexcept;

  AdapterStore& store_;
  const AdapterSize most_pinned_;
  Holds holds_;
};

}  // namespace chorus
