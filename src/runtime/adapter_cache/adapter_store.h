// The adapters of an executor: the content of each task id, the adapters that requests wait for, and the packed
// weights.
//
// A request's adapter lease (AdapterLease) goes through these calls: lease() when the request is admitted, which
// fixes the content it runs with; claim() when its turn in the queue comes; ensure() when it starts to run and leave()
// when it is paused; release() at its end. A claim pins the adapters in the host level, also while the request is
// paused. Only a running request pins them in the device level.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chorus/executor.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_lease.h"
#include "runtime/adapter_cache/adapter_loader.h"
#include "runtime/adapter_cache/claim_shares.h"

namespace chorus {

struct AdapterCapacity {
  AdapterSize host, device;
  // Limit on the pinned adapters of the host level: half of it, and so much that the largest adapter fits beside them.
  AdapterSize pinned = {};
  int64_t loads = 0;              // PeftCacheConfig::getLoadMemory(), in bytes
  bool reject_when_full = false;  // what claim() does without room on the host level
};

// Not thread-safe: used by the step thread alone. Only the loader's workers run on other threads.
class AdapterStore {
 public:
  AdapterStore(const AdapterCapacity& capacity, LoadAdapter load, ComposeAdapters compose, int workers,
               std::function<void()> on_loaded);

  static constexpr uint64_t kAllChanges = std::numeric_limits<uint64_t>::max();

  // These two are changes of a task. Their numbers ascend. Existing leases keep their adapter, and a lease of which
  // `changes_seen` is less than `change` gets what the task had before it.
  //
  // Other leases for task_id use this source.
  void registerSource(uint64_t task_id, std::shared_ptr<const AdapterSource> source, uint64_t change);
  // Other leases for task_id are refused.
  void unregister(uint64_t task_id, uint64_t change);
  // Forgets what only leases get that have seen fewer changes.
  void forgetReplaced(uint64_t changes_seen) noexcept;
  // Whether the task is registered, or has tensors that a request brought.
  bool knows(uint64_t task_id) const;

  // source: made from the request's tensors; null if it has none. changes_seen: number of the latest change that came
  // before the request. Throws Error, with the API's text, if the task id is unknown.
  AdapterLease lease(const executor::LoraConfig& config, std::shared_ptr<const AdapterSource> source,
                     uint64_t changes_seen = kAllChanges);
  // A composition. terms: at least one. Throws Error as above.
  AdapterLease lease(std::span<const executor::WeightedLora> terms, uint64_t changes_seen);

  // Claims adapters for waiting requests. Call beginClaims(), then claim() once per request in queue order, with the
  // leases of all its waiting sequences; these name the same adapters and are claimed together, so that all run with
  // one content.
  //
  // Requests ahead in the queue get room first. Behind a request that found no room, later ones may share resident
  // adapters but load none, and the number of their claims is limited so that the first is overtaken at most
  // max_bypasses times. times_bypassed: how often this request has been overtaken so far.
  //
  // With AdapterCapacity::reject_when_full there is no such waiting for adapters of other requests: claim() throws
  // Error(kBusy) for a request that finds no room beside them, and nothing has changed then. It waits only for the
  // end of loads whose requests are gone, and holds up no other requests meanwhile.
  //
  // own: what the client's requests have claimed before, if clients share the cache; null: no limit. Together with
  // these leases it may be no larger than what it leaves for others: room that is free or that evictions can free.
  // Pinned adapters do not count, and a client's only adapter may be of any size. A request beyond that waits for its
  // own client's requests, of which at most max_bypasses may overtake it. If there are none, which needs several
  // adapters of more than half the cache together, claim() throws Error(kBusy).
  //
  // Throws Error(kTooLarge) if the adapters can never fit, Error if they cannot be composed.
  void beginClaims();
  void claim(std::span<AdapterLease* const> leases, int32_t times_bypassed, int32_t max_bypasses,
             ClientClaims* own = nullptr);

  // takeLoaded: the next finished load, already in the cache if it succeeded; nullopt if there is none. Before the next
  // call, pass it to give() for every lease: those that waited for it take its packed weights. give() throws Error
  // (std::bad_alloc if there is no memory for one) if the lease's adapter failed to load, is too large or cannot be
  // composed; the caller then releases the lease.
  std::optional<AdapterLoad> takeLoaded();
  void give(const AdapterLoad& load, AdapterLease& lease);

  // Total size of a lease's adapters. Upper bounds count for those whose true size is not known yet.
  AdapterSize sizeOf(const AdapterLease& lease) const;
  bool sizeIsKnown(const AdapterLease& lease) const;
  // Whether the key's claim is one that lasts (adapter_holds.h). claim() throws Error(kBusy) for a request that could
  // only find room if such claims ended. Absent keys are ignored.
  void setPinned(AdapterKey key, bool pinned);

  // Puts a ready lease's adapters on the device until leave(), and composes them if the lease is on a composition. The
  // scheduler plans so that those of all running requests fit.
  void ensure(AdapterLease& lease);
  void leave(AdapterLease& lease);
  // Undoes all of the above. The lease is empty afterwards.
  void release(AdapterLease& lease);

  AdapterCache& cache() { return cache_; }
  executor::AdapterCacheStats stats() const;
  // The known tasks with ids from `first` on, in order of their ids; at most `most` of them.
  std::vector<executor::AdapterState> states(uint64_t first, size_t most) const;
  // Calls visit(ResidentAdapter) for every adapter of the host level, by task id. A task id whose older content is
  // still in use comes once for each content.
  template <typename Visit>
  void forEachResident(Visit visit) const {
    cache_.host().forEach([&](AdapterKey key, AdapterSize size, int32_t users, bool loading) {
      visit(executor::ResidentAdapter{.taskId = key.task_id,
                                      .bytes = size.bytes,
                                      .users = users,
                                      .loading = loading,
                                      .onDevice = cache_.device().contains(key)});
    });
  }

 private:
  struct Task {
    AdapterKey key;
    uint64_t number = 0;
    std::string content_hash;
    bool known = false;
    std::shared_ptr<const AdapterSource> directory;  // kept if reloadable
    std::weak_ptr<const AdapterSource> tensors;      // alive only while a request still needs it to load
  };
  // The adapter of a task before registerSource() or unregister() replaced it. Leases of requests that came earlier use
  // it.
  struct Replaced {
    Task task;
    std::shared_ptr<const AdapterSource> source;   // null: none is left
    std::shared_ptr<const PreparedAdapter> parts;  // set if there is no source
  };
  static std::shared_ptr<const AdapterSource> sourceOf(const Task& task) {
    return task.directory != nullptr ? task.directory : task.tensors.lock();
  }
  static void set(Task& task, AdapterKey key, uint64_t number, const std::shared_ptr<const AdapterSource>& source);
  void renew(uint64_t task_id, const std::shared_ptr<const AdapterSource>& source);
  void keepReplaced(uint64_t task_id, uint64_t change);
  // The adapter for a request that came after `changes_seen` changes: the one that the next change of its task
  // replaced. Null if there was no such change: the request uses the present adapter.
  Replaced* replacedOf(uint64_t task_id, uint64_t changes_seen);
  // Forgets the task. Leases that have its adapter keep it.
  void forget(uint64_t task_id) noexcept;
  // Gives the task the tensors of a request.
  void bring(uint64_t task_id, const std::shared_ptr<const AdapterSource>& tensors, uint64_t changes_seen);
  // Adds the task's content to the lease unless it is there already. Returns the content's number.
  uint64_t addMember(uint64_t task_id, AdapterLease& lease, uint64_t changes_seen);
  AdapterSize sizeOf(const AdapterMember& member) const;
  // Whether the client may claim this lease as well, or the lease finds no room whoever claims it. Throws as claim()
  // does.
  bool leavesRoom(const AdapterLease& lease, const ClientClaims& own) const;
  // Returns false if there is no room. Throws as claim() does.
  bool claimNow(AdapterLease& lease);
  bool wasAdded(AdapterKey key) const;  // by the claim in progress
  // Whether the adapters of the claim in progress do not fit beside the pinned ones.
  bool needsPinnedRoom() const;
  void giveMember(AdapterMember& member, std::optional<uint64_t> client);
  std::shared_ptr<AdapterComposition> compositionOf(std::vector<std::pair<uint64_t, float>> terms);
  void settle(AdapterLease& lease);
  // The terms of a composition whose members are all loaded.
  static std::vector<WeightedAdapter> termsOf(const AdapterLease& lease);
  std::shared_ptr<const PreparedAdapter> compose(const AdapterLease& lease) const;
  std::span<const AdapterKey> keysOf(const AdapterLease& lease);
  std::shared_ptr<const PreparedAdapter> parts(AdapterKey key) const;
  void forgetGone();

  AdapterCache cache_;
  executor::AdapterLoadTimes load_times_;
  const bool reject_when_full_;
  ComposeAdapters compose_;
  std::map<uint64_t, Task> tasks_;
  std::map<std::pair<uint64_t, uint64_t>, Replaced> replaced_;          // by task id and number of the change
  uint64_t brought_ = 0;                                                // contents that bring() gave to replaced_
  std::map<AdapterKey, std::shared_ptr<const PreparedAdapter>> parts_;  // packed weights of the host level
  std::map<std::vector<std::pair<uint64_t, float>>, std::weak_ptr<AdapterComposition>> compositions_;
  std::set<AdapterKey> pinned_;
  uint64_t numbers_ = 0;
  bool may_load_ = true;
  int32_t claims_left_ = 0;  // for requests behind one that found no room
  // Scratch of one call, kept for its memory.
  std::vector<AdapterWant> wants_;
  std::vector<AdapterKey> keys_, added_;
  AdapterLoader loader_;  // last member: its workers stop before the others are destroyed
};

}  // namespace chorus
