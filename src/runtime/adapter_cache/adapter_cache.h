// Which adapters are resident: bytes, users and eviction order. Pure bookkeeping: no weights, no clock, no
// I/O.
//
// An entry is pinned while it loads and while somebody uses it. When room is needed the least recently
// completed entries go first (completed: the last user left), and only if they free enough.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace chorus {

// An adapter's content: registering a task id again makes a new generation.
struct AdapterKey {
  uint64_t task_id = 0;
  uint32_t generation = 0;
  friend auto operator<=>(const AdapterKey&, const AdapterKey&) = default;
};

// Not thread-safe.
class AdapterCache {
 public:
  explicit AdapterCache(int64_t budget_bytes) : budget_(budget_bytes) {}

  enum class Claim {
    kReady,     // resident; one more user
    kLoading,   // being loaded for another user; one more user
    kMustLoad,  // room was made; one user; the caller loads it and reports loaded() or failed()
    kNoRoom,    // what is not in use does not free enough; nothing changed
    kTooLarge,  // larger than the whole budget; nothing changed
    kAbsent     // not resident, and may_load was false; nothing changed
  };
  // bytes: what the entry will take, where it is not there yet.
  Claim claim(AdapterKey key, int64_t bytes, bool may_load);
  // Undoes one claim. The last user's release completes the entry.
  void release(AdapterKey key);

  // The load that kMustLoad asked for is done, with its true size. False when that does not fit: the entry
  // stays loading, and the caller reports failed().
  bool loaded(AdapterKey key, int64_t bytes);
  // The load failed: the entry and its claims are gone.
  void failed(AdapterKey key);

  // The task's current generation, 0 when it never had one.
  uint32_t generation(uint64_t task_id) const;
  // Starts a new generation. The old one can no longer be asked for: it goes now, or with its last user.
  AdapterKey renew(uint64_t task_id);

  bool resident(AdapterKey key) const;
  int64_t usedBytes() const { return used_; }
  int64_t budgetBytes() const { return budget_; }
  size_t entries() const { return entries_.size(); }
  int64_t evictions() const { return evictions_; }
  // Keys that left since the last call, in order; the caller frees their weights.
  std::vector<AdapterKey> takeEvicted();

 private:
  struct Entry {
    int64_t bytes = 0;
    int32_t users = 0;
    bool loading = true;
    uint64_t completed = 0;  // stamp of the last completion; 0 while pinned
  };
  using Entries = std::map<AdapterKey, Entry>;

  bool makeRoom(int64_t bytes);
  void complete(Entries::iterator entry);
  void remove(Entries::iterator entry);

  int64_t budget_;
  int64_t used_ = 0;
  int64_t evictable_ = 0;  // bytes of completed entries
  int64_t evictions_ = 0;
  uint64_t stamp_ = 0;
  Entries entries_;
  std::map<uint64_t, AdapterKey> completed_;  // by stamp, oldest first
  std::unordered_map<uint64_t, uint32_t> generations_;
  std::vector<AdapterKey> evicted_;
};

}  // namespace chorus
