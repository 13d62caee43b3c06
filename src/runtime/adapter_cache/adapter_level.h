// One level of the adapter cache: sizes, users and eviction order. Pure bookkeeping: no weights, no clock, no I/O.
//
// An entry is pinned while it loads and while somebody uses it. When room is needed the least recently completed
// entries go first (completed: the last user left), and only if they free enough.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/adapter_cache/adapter_size.h"

namespace chorus {

// An adapter's content: registering a task id again makes a new generation.
struct AdapterKey {
  uint64_t task_id = 0;
  uint32_t generation = 0;
  friend auto operator<=>(const AdapterKey&, const AdapterKey&) = default;
};

struct AdapterWant {
  AdapterKey key;
  AdapterSize size;  // what it takes where it is not there yet
};

// Not thread-safe. Only claim() allocates: what it made room for cannot fail later.
class AdapterLevel {
 public:
  explicit AdapterLevel(AdapterSize capacity) : capacity_(capacity) {}

  enum class Claim {
    kClaimed,   // one more user of each
    kNoRoom,    // what is not in use does not free enough; nothing changed
    kTooLarge,  // together larger than the whole level; nothing changed
    kAbsent     // one is not there, and may_add was false; nothing changed
  };
  // Pins all of them or none. wants: distinct keys. Those that were not there are appended to `added`: they are loading
  // until loaded() or failed(). When memory is missing nothing has changed.
  Claim claim(std::span<const AdapterWant> wants, bool may_add, std::vector<AdapterKey>& added);
  // Undoes one claim of a key. The last user's release completes the entry.
  void release(AdapterKey key);

  // The entry is there, with its true size. False when that does not fit: it stays loading, and failed() is to follow.
  bool loaded(AdapterKey key, AdapterSize size);
  // The entry and its claims are gone.
  void failed(AdapterKey key);
  // Nobody will ask for it again: it goes now, or with its last user. Absent keys are ignored.
  void retire(AdapterKey key);
  // Nobody uses it and it goes now, as if for want of room. Absent keys are ignored.
  void evict(AdapterKey key);

  bool resident(AdapterKey key) const;
  bool contains(AdapterKey key) const { return entries_.contains(key); }
  // Of an entry that is there.
  AdapterSize sizeOf(AdapterKey key) const;
  AdapterSize used() const { return used_; }
  const AdapterSize& capacity() const { return capacity_; }
  size_t entries() const { return entries_.size(); }
  size_t pinned() const { return entries_.size() - completed_.size(); }
  // Since the start: claims of an entry that was there or loading, of one that was not, entries that went for want of
  // room.
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  int64_t evictions() const { return evictions_; }
  // Keys that left since the last clearGone(), in order; what they stood for can be freed.
  const std::vector<AdapterKey>& gone() const { return gone_; }
  void clearGone() noexcept { gone_.clear(); }

 private:
  using Completed = std::map<uint64_t, AdapterKey>;  // by stamp, oldest first
  struct Entry {
    AdapterSize size;
    int32_t users = 0;
    bool loading = true;
    bool retired = false;
    uint64_t completed = 0;      // stamp of the last completion; 0 while pinned
    Completed::node_type spare;  // for the next completion, while pinned
  };
  using Entries = std::map<AdapterKey, Entry>;

  void makeRoom(AdapterSize size);
  void pin(Entry& entry);
  void complete(Entries::iterator entry);
  void remove(Entries::iterator entry);

  AdapterSize capacity_;
  AdapterSize used_;
  AdapterSize evictable_;  // of completed entries
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
  uint64_t stamp_ = 0;
  Entries entries_;
  Completed completed_;
  std::vector<AdapterKey> gone_;
};

}  // namespace chorus
