#include "runtime/adapter_cache/adapter_level.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chorus {

AdapterLevel::Claim AdapterLevel::claim(std::span<const AdapterWant> wants, bool may_add,
                                        std::vector<AdapterKey>& added) {
  AdapterSize total, missing, unpinned = evictable_;
  size_t present = 0;
  for (const AdapterWant& want : wants) {
    const auto found = entries_.find(want.key);
    if (found == entries_.end()) {
      missing += want.size;
      total += want.size;
      continue;
    }
    ++present;
    total += found->second.size;
    if (found->second.completed != 0) unpinned -= found->second.size;
  }
  if (present < wants.size()) {
    if (!total.within(capacity_)) return Claim::kTooLarge;
    if (!may_add) return Claim::kAbsent;
    if (!(used_ - unpinned + missing).within(capacity_)) return Claim::kNoRoom;
  }
  Entries made;
  for (const AdapterWant& want : wants) {
    if (entries_.contains(want.key)) continue;
    Entry& entry = made[want.key];
    entry.size = want.size;
    entry.users = 1;
    Completed spare;
    spare.emplace(0, want.key);
    entry.spare = spare.extract(spare.begin());
  }
  gone_.reserve(gone_.size() + entries_.size() + made.size());
  added.reserve(added.size() + made.size());
  for (const AdapterWant& want : wants) {
    const auto found = entries_.find(want.key);
    if (found == entries_.end()) continue;
    pin(found->second);
    ++hits_;
  }
  makeRoom(missing);
  for (const AdapterWant& want : wants) {
    if (!made.contains(want.key)) continue;
    used_ += want.size;
    entries_.insert(made.extract(want.key));
    added.push_back(want.key);
    ++misses_;
  }
  return Claim::kClaimed;
}

bool AdapterLevel::willHaveRoom(std::span<const AdapterWant> wants) const {
  AdapterSize needed;
  for (const AdapterWant& want : wants) {
    if (!entries_.contains(want.key)) needed += want.size;
  }
  for (const auto& [key, entry] : entries_) {
    const bool wanted = std::ranges::any_of(wants, [&](const AdapterWant& want) { return want.key == key; });
    if (entry.users > 0 || wanted) needed += entry.size;
  }
  return needed.within(capacity_);
}

void AdapterLevel::release(AdapterKey key) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.users > 0);
  if (--found->second.users == 0 && !found->second.loading) complete(found);
}

bool AdapterLevel::loaded(AdapterKey key, AdapterSize size) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.loading);
  const AdapterSize others = used_ - found->second.size;
  if (!(others - evictable_ + size).within(capacity_)) return false;
  used_ = others;
  makeRoom(size);
  used_ += size;
  found->second.size = size;
  found->second.loading = false;
  if (found->second.users == 0) complete(found);
  return true;
}

void AdapterLevel::failed(AdapterKey key) {
  const auto found = entries_.find(key);
  assert(found != entries_.end() && found->second.loading);
  used_ -= found->second.size;
  entries_.erase(found);
}

void AdapterLevel::retire(AdapterKey key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.retired = true;
  if (found->second.completed != 0) remove(found);
}

void AdapterLevel::evict(AdapterKey key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  assert(found->second.completed != 0);
  ++evictions_;
  remove(found);
}

bool AdapterLevel::resident(AdapterKey key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && !found->second.loading;
}

AdapterSize AdapterLevel::sizeOf(AdapterKey key) const { return entries_.at(key).size; }

// Precondition: evicting completed entries frees enough.
void AdapterLevel::makeRoom(AdapterSize size) {
  while (!(used_ + size).within(capacity_)) {
    assert(!completed_.empty());
    evict(completed_.begin()->second);
  }
}

void AdapterLevel::pin(Entry& entry) {
  ++entry.users;
  if (entry.completed == 0) return;
  entry.spare = completed_.extract(entry.completed);
  evictable_ -= entry.size;
  entry.completed = 0;
}

void AdapterLevel::complete(Entries::iterator entry) {
  entry->second.completed = ++stamp_;
  entry->second.spare.key() = entry->second.completed;
  completed_.insert(std::move(entry->second.spare));
  evictable_ += entry->second.size;
  if (entry->second.retired) remove(entry);
}

void AdapterLevel::remove(Entries::iterator entry) {
  completed_.erase(entry->second.completed);
  evictable_ -= entry->second.size;
  used_ -= entry->second.size;
  gone_.push_back(entry->first);
  entries_.erase(entry);
}

}  // namespace chorus
