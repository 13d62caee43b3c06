// The adapters of an executor: which task id means which content, who waits for what, which packed weights
// are held.
//
// A request takes a ticket when it is admitted, which fixes the content it will run with, then claims its
// adapter when its turn in the queue comes, and gives the ticket back at its end. A claim pins the adapter,
// also while the request is paused.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "chorus/request.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_loader.h"

namespace chorus {

// A request's hold on an adapter. Empty for a request without one.
struct AdapterTicket {
  AdapterKey key;
  bool used = false;     // the request has an adapter
  bool claimed = false;  // it is pinned in the cache
  bool no_room = false;  // the last attempt to claim found the cache full of adapters in use
  uint64_t number = 0;   // of this content, never 0 and never used again; what the scheduler tells adapters apart by
  std::shared_ptr<const AdapterSource> source;   // to load from; null where parts serve
  std::shared_ptr<const PreparedAdapter> parts;  // set when it is ready

  bool ready() const { return !used || (claimed && parts != nullptr); }
};

// Not thread-safe: used by the step thread alone. Only its loader's workers run elsewhere.
class AdapterStore {
 public:
  AdapterStore(int64_t budget_bytes, LoadAdapter load, int workers, std::function<void()> on_loaded);

  // Later tickets for task_id mean this source.
  void registerSource(uint64_t task_id, std::shared_ptr<const AdapterSource> source);
  // Later tickets for task_id are refused. Requests that have one keep their adapter.
  void unregister(uint64_t task_id);

  // source: made from the request's tensors, null when it has none. Throws Error, with the API's text, when
  // the task id is not known.
  AdapterTicket ticket(const executor::LoraConfig& config, std::shared_ptr<const AdapterSource> source);

  // Tries to claim for waiting requests; call claim() for each in queue order after beginClaims(). Those
  // ahead in the queue get room first: behind one that finds none, requests may share what is resident but
  // load nothing, and only so many hold a claim that it is overtaken at most max_bypasses times;
  // times_bypassed of these have happened. Throws Error when the adapter can never fit.
  void beginClaims();
  void claim(AdapterTicket& ticket, int32_t times_bypassed, int32_t max_bypasses);
  // Undoes what ticket() and claim() did. The ticket is empty afterwards.
  void release(AdapterTicket& ticket);

  // Loads that ended since the last call, their results already in the cache. On success every claimed ticket
  // of the key takes parts(key); on failure every claimed ticket of the key is void: take error, then drop()
  // it.
  std::vector<AdapterLoad> takeLoaded();
  std::shared_ptr<const PreparedAdapter> parts(AdapterKey key) const;
  void drop(AdapterTicket& ticket) { ticket = AdapterTicket(); }

  const AdapterCache& cache() const { return cache_; }

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
  void forgetEvicted();

  AdapterCache cache_;
  std::unordered_map<uint64_t, Task> tasks_;
  std::map<AdapterKey, std::shared_ptr<const PreparedAdapter>> parts_;
  uint64_t numbers_ = 0;
  bool may_load_ = true;
  int32_t claims_left_ = 0;  // of those behind a request that found no room
  AdapterLoader loader_;     // last: its workers end before the rest goes
};

}  // namespace chorus
