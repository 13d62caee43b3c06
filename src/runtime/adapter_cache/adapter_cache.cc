#include "runtime/adapter_cache/adapter_cache.h"

#include <cassert>
#include <utility>

namespace chorus {

AdapterCache::Claim AdapterCache::claim(AdapterKey key, int64_t bytes, bool may_load) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    Entry& entry = found->second;
    if (entry.completed != 0) {
      completed_.erase(entry.completed);
      evictable_ -= entry.bytes;
      entry.completed = 0;
    }
    ++entry.users;
    return entry.loading ? Claim::kLoading : Claim::kReady;
  }
  if (!may_load) return Claim::kAbsent;
  if (bytes > budget_) return Claim::kTooLarge;
  if (!makeRoom(bytes)) return Claim::kNoRoom;
  used_ += bytes;
  entries_.emplace(key, Entry{bytes, 1, true, 0});
  return Claim::kMustLoad;
}

void AdapterCache::release(AdapterKey key) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.users > 0);
  if (--found->second.users == 0 && !found->second.loading) complete(found);
}

bool AdapterCache::loaded(AdapterKey key, int64_t bytes) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.loading);
  used_ -= found->second.bytes;
  const bool fits = bytes <= budget_ && makeRoom(bytes);
  if (fits) found->second.bytes = bytes;
  used_ += found->second.bytes;
  if (!fits) return false;
  found->second.loading = false;
  if (found->second.users == 0) complete(found);
  return true;
}

void AdapterCache::failed(AdapterKey key) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.loading);
  used_ -= found->second.bytes;
  entries_.erase(found);
}

uint32_t AdapterCache::generation(uint64_t task_id) const {
  const auto found = generations_.find(task_id);
  return found == generations_.end() ? 0 : found->second;
}

AdapterKey AdapterCache::renew(uint64_t task_id) {
  const AdapterKey old{task_id, generation(task_id)};
  generations_[task_id] = old.generation + 1;
  const auto found = entries_.find(old);
  if (found != entries_.end() && found->second.completed != 0) remove(found);
  return {task_id, old.generation + 1};
}

bool AdapterCache::resident(AdapterKey key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && !found->second.loading;
}

std::vector<AdapterKey> AdapterCache::takeEvicted() { return std::exchange(evicted_, {}); }

bool AdapterCache::makeRoom(int64_t bytes) {
  if (used_ - evictable_ + bytes > budget_) return false;
  while (used_ + bytes > budget_) {
    ++evictions_;
    remove(entries_.find(completed_.begin()->second));
  }
  return true;
}

void AdapterCache::complete(Entries::iterator entry) {
  entry->second.completed = ++stamp_;
  completed_.emplace(entry->second.completed, entry->first);
  evictable_ += entry->second.bytes;
  if (entry->first.generation != generation(entry->first.task_id)) remove(entry);
}

void AdapterCache::remove(Entries::iterator entry) {
  completed_.erase(entry->second.completed);
  evictable_ -= entry->second.bytes;
  used_ -= entry->second.bytes;
  evicted_.push_back(entry->first);
  entries_.erase(entry);
}

}  // namespace chorus
