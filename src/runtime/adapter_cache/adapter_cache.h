// Which adapters are resident: a host level that holds loaded adapters and, within it, a device level that holds those
// which steps can use. Pure bookkeeping.
//
// What is on the device is on the host too: an adapter that leaves the host leaves the device with it. On the CPU a
// device entry is a counted reference to the host's weights, and the host level's bytes are all there are.
#pragma once

#include <functional>
#include <unordered_map>

#include "runtime/adapter_cache/adapter_level.h"

namespace chorus {

// An operation on a cache and its outcome, for those who follow what it does.
struct AdapterCacheEvent {
  enum class Kind { kClaim, kLoaded, kFailed, kRelease, kRenew, kEnsure, kLeave };
  Kind kind = Kind::kClaim;
  std::span<const AdapterWant> wants;  // kRenew: the new generation; sizes where the operation has them
  bool may_load = false;               // kClaim
  AdapterLevel::Claim claim = AdapterLevel::Claim::kClaimed;  // kClaim, kEnsure: the outcome
  bool fits = true;                                           // kLoaded: the outcome
};

// Not thread-safe. Only claim(), ensure() and renew() allocate; when memory is missing for them nothing has changed.
class AdapterCache {
 public:
  using Claim = AdapterLevel::Claim;

  AdapterCache(AdapterSize host, AdapterSize device) : host_(host), device_(device) {}
  // Called after every operation; empty: nobody. The event is valid during the call.
  void observe(std::function<void(const AdapterCacheEvent&)> observer) { observer_ = std::move(observer); }

  // The host level, for requests on their way to their first step and until they end. Pins all of a request's adapters
  // or none; those that the caller is to load are appended to to_load.
  Claim claim(std::span<const AdapterWant> wants, bool may_load, std::vector<AdapterKey>& to_load);
  // Undoes one claim of each key, which must have left the device level.
  void release(std::span<const AdapterKey> keys);
  // A load ended; false as AdapterLevel::loaded.
  bool loaded(AdapterKey key, AdapterSize size);
  void failed(AdapterKey key);

  // The device level, for requests that run. keys: claimed and loaded. Those that the caller is to copy before the next
  // step are appended to to_copy.
  Claim ensure(std::span<const AdapterKey> keys, std::vector<AdapterKey>& to_copy);
  // Undoes one ensure of each key.
  void leave(std::span<const AdapterKey> keys);

  // The task's current generation, 0 when it never had one.
  uint32_t generation(uint64_t task_id) const;
  // Starts a new generation. The old one can no longer be asked for: it goes now, or with its last user.
  AdapterKey renew(uint64_t task_id);

  const AdapterLevel& host() const { return host_; }
  const AdapterLevel& device() const { return device_; }
  int64_t loads() const { return loads_; }  // that ended well
  int64_t failures() const { return failures_; }
  // Keys that left a level since they were last forgotten, in order; the caller frees their weights there.
  const std::vector<AdapterKey>& goneFromHost() const { return gone_; }
  const std::vector<AdapterKey>& goneFromDevice() const { return device_.gone(); }
  void forgetGone() noexcept;

 private:
  void follow(bool evicted);
  void reserve(size_t wants);
  void tell(AdapterCacheEvent event);

  AdapterLevel host_, device_;
  int64_t loads_ = 0, failures_ = 0;
  std::unordered_map<uint64_t, uint32_t> generations_;
  std::vector<AdapterKey> gone_;
  std::vector<AdapterWant> wants_;  // of an operation in hand, kept for its memory
  std::function<void(const AdapterCacheEvent&)> observer_;
};

}  // namespace chorus
