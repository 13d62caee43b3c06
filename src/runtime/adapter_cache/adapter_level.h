// One level of the adapter cache: sizes, users and eviction order. Pure bookkeeping: no weights, no clock, no I/O.
//
// An entry is pinned while it loads and while it has users. It is completed when its last user leaves. When room is
// needed, the entries that were completed longest ago are evicted first, and only if evictions can free enough.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/adapter_cache/adapter_size.h"

namespace chorus {

// An adapter's content. Registering a task id makes a new generation.
struct AdapterKey {
  uint64_t task_id = 0;
  uint64_t generation = 0;
  friend auto operator<=>(const AdapterKey&, const AdapterKey&) = default;
};

struct AdapterWant {
  AdapterKey key;
  AdapterSize size;  // used only if the key has no entry yet
};

// Not thread-safe. Only claim() allocates; a claim that succeeded cannot run out of memory later.
class AdapterLevel {
 public:
  explicit AdapterLevel(AdapterSize capacity) : capacity_(capacity) {}

  enum class Claim {
    kClaimed,   // each key has one more user
    kNoRoom,    // evicting all unpinned entries would not free enough; nothing changed
    kTooLarge,  // the keys together are larger than the whole level; nothing changed
    kAbsent     // a key has no entry and may_add is false; nothing changed
  };
  // Pins all keys or none. wants: distinct keys. Keys without an entry get one and are appended to `added`; they are
  // loading until loaded() or failed(). If an allocation throws, nothing has changed.
  Claim claim(std::span<const AdapterWant> wants, bool may_add, std::vector<AdapterKey>& added);
  // After kNoRoom: whether the keys fit once the entries that still load, but have lost their users, can be evicted.
  bool willHaveRoom(std::span<const AdapterWant> wants) const;
  // Undoes one claim of a key. When the last user releases it, the entry is completed and can be evicted.
  void release(AdapterKey key);

  // The entry is loaded, with its true size. Returns false if that does not fit: the entry stays loading, and the
  // caller must call failed().
  bool loaded(AdapterKey key, AdapterSize size);
  // Removes a loading entry together with its claims.
  void failed(AdapterKey key);
  // The key will not be claimed again: its entry leaves at once or with its last user. Absent keys are ignored.
  void retire(AdapterKey key);
  // Removes an entry without users and counts it as an eviction. Absent keys are ignored.
  void evict(AdapterKey key);

  bool resident(AdapterKey key) const;
  bool contains(AdapterKey key) const { return entries_.contains(key); }
  // Precondition of sizeOf(), usersOf() and isPinned(): the key has an entry.
  AdapterSize sizeOf(AdapterKey key) const;
  int32_t usersOf(AdapterKey key) const { return entries_.at(key).users; }
  // Calls visit(key, size, users, loading) for every entry, in the order of the keys.
  template <typename Visit>
  void forEach(Visit visit) const {
    for (const auto& [key, entry] : entries_) visit(key, entry.size, entry.users, entry.loading);
  }
  AdapterSize used() const { return used_; }
  // Total size of the pinned entries.
  AdapterSize pinnedSize() const { return used_ - evictable_; }
  bool isPinned(AdapterKey key) const { return entries_.at(key).completed == 0; }
  const AdapterSize& capacity() const { return capacity_; }
  size_t entries() const { return entries_.size(); }
  size_t pinned() const { return entries_.size() - completed_.size(); }
  // Totals since construction. hits: claims of a key with an entry, loaded or loading; misses: claims of a key without
  // one; evictions: entries that were removed to make room.
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  int64_t evictions() const { return evictions_; }
  // Keys removed since the last clearGone(), in order. The caller can free their weights.
  const std::vector<AdapterKey>& gone() const { return gone_; }
  void clearGone() noexcept { gone_.clear(); }

 private:
  using Completed = std::map<uint64_t, AdapterKey>;  // by stamp of completion, oldest first
  struct Entry {
    AdapterSize size;
    int32_t users = 0;
    bool loading = true;
    bool retired = false;
    uint64_t completed = 0;      // stamp of the last completion; 0 while pinned
    Completed::node_type spare;  // preallocated node for the next completion, while pinned
  };
  using Entries = std::map<AdapterKey, Entry>;

  void makeRoom(AdapterSize size);
  void pin(Entry& entry);
  void complete(Entries::iterator entry);
  void remove(Entries::iterator entry);

  AdapterSize capacity_;
  AdapterSize used_;
  AdapterSize evictable_;  // total size of completed entries
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
  uint64_t stamp_ = 0;
  Entries entries_;
  Completed completed_;
  std::vector<AdapterKey> gone_;
};

}  // namespace chorus
