// The adapters of an executor: which task id means which content, who waits for what, which packed weights
// are held.
//
// A request takes a ticket when it is admitted, which fixes the content it will run with, claims its adapters when its
// turn in the queue comes, has them on the device while it runs, and gives the ticket back at its end. A claim pins the
// adapters in the host level, also while the request is paused; a paused request has none on the device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "chorus/executor.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_loader.h"
#include "runtime/adapter_cache/adapter_ticket.h"

namespace chorus {

struct AdapterCapacity {
  AdapterSize host, device;
};

// Not thread-safe: used by the step thread alone. Only its loader's workers run elsewhere.
class AdapterStore {
 public:
  AdapterStore(const AdapterCapacity& capacity, LoadAdapter load, int workers, std::function<void()> on_loaded);

  // Later tickets for task_id mean this source.
  void registerSource(uint64_t task_id, std::shared_ptr<const AdapterSource> source);
  // Later tickets for task_id are refused. Requests that have one keep their adapter.
  void unregister(uint64_t task_id);

  // source: made from the request's tensors, null when it has none. Throws Error, with the API's text, when
  // the task id is not known.
  AdapterTicket ticket(const executor::LoraConfig& config, std::shared_ptr<const AdapterSource> source);
  // terms: at least one. Throws Error as above.
  AdapterTicket ticket(std::span<const executor::WeightedLora> terms);

  // Tries to claim for waiting requests; call claim() for each in queue order after beginClaims(), with the tickets of
  // all its sequences that wait, which are for the same adapters. They are claimed together or not at all: what is
  // claimed stays, so that all run with one content. Those ahead in the queue get room first: behind one that finds
  // none, requests may share what is resident but load nothing, and only so many hold a claim that it is overtaken at
  // most max_bypasses times; times_bypassed of these have happened. Throws Error when the adapters can never fit, or
  // cannot be composed.
  void beginClaims();
  void claim(std::span<AdapterTicket* const> tickets, int32_t times_bypassed, int32_t max_bypasses);

  // A load that ended, now in the cache if it ended well; nullopt when there is none. It is to be given to every ticket
  // before the next is taken: those that waited for it take its parts. Throws Error to a ticket whose adapter failed,
  // is too large or cannot be composed, which is then to be released.
  std::optional<AdapterLoad> takeLoaded();
  void give(const AdapterLoad& load, AdapterTicket& ticket);

  // Puts a ready ticket's adapters on the device, for as long as its request runs. The scheduler sees to it that those
  // of all running requests have room.
  void ensure(AdapterTicket& ticket);
  void leave(AdapterTicket& ticket);
  // Undoes what all of the above did. The ticket is empty afterwards.
  void release(AdapterTicket& ticket);

  AdapterCache& cache() { return cache_; }
  executor::AdapterCacheStats stats() const;

 private:
  struct Task {
    AdapterKey key;
    uint64_t number = 0;
    std::string content_hash;
    bool known = false;
    std::shared_ptr<const AdapterSource> directory;  // reloadable: kept
    std::weak_ptr<const AdapterSource> tensors;      // alive as long as somebody still needs them to load
  };
  void renew(uint64_t task_id, const std::shared_ptr<const AdapterSource>& source);
  // Adds the task's content to the ticket, once; returns its number.
  uint64_t addMember(uint64_t task_id, AdapterTicket& ticket);
  AdapterSize sizeOf(const AdapterMember& member) const;
  // False: there is no room. Throws as claim().
  bool claimNow(AdapterTicket& ticket);
  bool wasAdded(AdapterKey key) const;  // by the claim in hand
  void giveMember(AdapterMember& member);
  std::shared_ptr<AdapterComposition> compositionOf(std::vector<std::pair<uint64_t, float>> terms);
  void settle(AdapterTicket& ticket);
  std::shared_ptr<const PreparedAdapter> compose(const AdapterTicket& ticket) const;
  std::span<const AdapterKey> keysOf(const AdapterTicket& ticket);
  std::shared_ptr<const PreparedAdapter> parts(AdapterKey key) const;
  void forgetGone();

  AdapterCache cache_;
  std::unordered_map<uint64_t, Task> tasks_;
  std::map<AdapterKey, std::shared_ptr<const PreparedAdapter>> parts_;  // of the host level
  std::map<std::vector<std::pair<uint64_t, float>>, std::weak_ptr<AdapterComposition>> compositions_;
  uint64_t numbers_ = 0;
  bool may_load_ = true;
  int32_t claims_left_ = 0;  // of those behind a request that found no room
  // Of a call in hand, kept for their memory.
  std::vector<AdapterWant> wants_;
  std::vector<AdapterKey> keys_, added_;
  AdapterLoader loader_;  // last: its workers end before the rest goes
};

}  // namespace chorus
