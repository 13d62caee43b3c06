// Keeps account of which adapters are in memory: a host level of loaded adapters and a device level of those that steps
// can use. Pure bookkeeping.
//
// The device level is a subset of the host level: an adapter that leaves the host leaves the device with it. On the CPU
// a device entry is a counted reference to the host's weights and takes no memory of its own.
#pragma once

#include <functional>
#include <unordered_map>

#include "runtime/adapter_cache/adapter_level.h"

namespace chorus {

// An operation on a cache and its outcome, for observers.
struct AdapterCacheEvent {
  enum class Kind { kClaim, kLoaded, kFailed, kRelease, kRenew, kEnd, kEnsure, kLeave };
  Kind kind = Kind::kClaim;
  // kRenew: the new generation; kEnd: the last one. Sizes are set where the operation has them.
  std::span<const AdapterWant> wants;
  bool may_load = false;                                      // kClaim
  AdapterLevel::Claim claim = AdapterLevel::Claim::kClaimed;  // kClaim, kEnsure: the outcome
  bool fits = true;                                           // kLoaded: the outcome
};

// Not thread-safe. Only claim(), ensure() and renew() allocate. If an allocation throws, the cache is unchanged.
class AdapterCache {
 public:
  using Claim = AdapterLevel::Claim;

  AdapterCache(AdapterSize host, AdapterSize device) : host_(host), device_(device) {}
  // The observer is called after every operation; empty: none. The event is valid during the call only.
  void observe(std::function<void(const AdapterCacheEvent&)> observer) { observer_ = std::move(observer); }

  // Host level: a request claims its adapters before its first step and keeps them until it ends. Pins all of them or
  // none. Appends the adapters that the caller must load to to_load.
  Claim claim(std::span<const AdapterWant> wants, bool may_load, std::vector<AdapterKey>& to_load);
  // Undoes one claim of each key. The keys must have left the device level.
  void release(std::span<const AdapterKey> keys);
  // A load succeeded, with the adapter's true size. Returns false as AdapterLevel::loaded does.
  bool loaded(AdapterKey key, AdapterSize size);
  void failed(AdapterKey key);

  // Device level: for running requests. The keys are claimed and loaded. Appends the adapters that the caller must copy
  // before the next step to to_copy.
  Claim ensure(std::span<const AdapterKey> keys, std::vector<AdapterKey>& to_copy);
  // Undoes one ensure() of each key.
  void leave(std::span<const AdapterKey> keys);

  // The task's current generation; 0 if it has none.
  uint64_t generation(uint64_t task_id) const;
  // Starts a new generation. New leases do not get the old one, which leaves at once or with its last user.
  AdapterKey renew(uint64_t task_id);
  // Ends the task's current generation like renew(), and forgets the task.
  void end(uint64_t task_id) noexcept;

  const AdapterLevel& host() const { return host_; }
  const AdapterLevel& device() const { return device_; }
  int64_t loads() const { return loads_; }  // successful ones
  int64_t failures() const { return failures_; }
  // Keys that left a level since the last forgetGone(), in order. The caller frees their weights on that level.
  const std::vector<AdapterKey>& goneFromHost() const { return gone_; }
  const std::vector<AdapterKey>& goneFromDevice() const { return device_.gone(); }
  void forgetGone() noexcept;

 private:
  void follow(bool evicted);
  void reserve(size_t wants);
  void tell(AdapterCacheEvent event);

  AdapterLevel host_, device_;
  int64_t loads_ = 0, failures_ = 0;
  // The current generations, counted over all tasks: so no later key of a task that was forgotten equals an earlier
  // one, which leases may still hold.
  std::unordered_map<uint64_t, uint64_t> generations_;
  uint64_t generations_made_ = 0;
  std::vector<AdapterKey> gone_;
  std::vector<AdapterWant> wants_;  // scratch of one operation, kept for its memory
  std::function<void(const AdapterCacheEvent&)> observer_;
};

}  // namespace chorus
