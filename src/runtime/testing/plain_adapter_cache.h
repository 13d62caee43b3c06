// A simple and slow adapter cache: two vectors, each in order of completion and searched from the front. Tests compare
// AdapterCache with it, call by call or from the events of a run.
#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "runtime/adapter_cache/adapter_cache.h"

namespace chorus::testing {

class PlainAdapterCache {
 public:
  using Claim = AdapterLevel::Claim;
  struct Entry {
    AdapterKey key;
    AdapterSize size;
    int32_t users = 0;
    bool loading = false;
  };
  struct Level {
    AdapterSize capacity;
    std::vector<Entry> entries;  // those without users in order of completion
    int64_t hits = 0, misses = 0, evictions = 0;

    Entry* find(AdapterKey key) {
      for (auto& entry : entries) {
        if (entry.key == key) return &entry;
      }
      return nullptr;
    }
    const Entry& at(AdapterKey key) {
      if (const Entry* entry = find(key)) return *entry;
      throw std::logic_error("no entry for this adapter");
    }
    AdapterSize used() const {
      AdapterSize sum;
      for (const auto& entry : entries) sum += entry.size;
      return sum;
    }
    void drop(AdapterKey key) {
      std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; });
    }
    static bool idle(const Entry& entry) { return entry.users == 0 && !entry.loading; }
  };

  PlainAdapterCache(AdapterSize host_capacity, AdapterSize device_capacity) {
    host.capacity = host_capacity;
    device.capacity = device_capacity;
  }

  Level host, device;
  int64_t loads = 0, failures = 0;
  std::map<uint64_t, uint64_t> generations;
  uint64_t generations_made = 0;

  Claim claim(std::span<const AdapterWant> wants, bool may_load) {
    const Claim outcome = take(host, wants, may_load, true);
    if (outcome == Claim::kClaimed) {
      for (const auto& want : wants) {
        Entry* entry = host.find(want.key);
        if (entry == nullptr) host.entries.push_back({want.key, want.size, 1, true});
      }
    }
    return outcome;
  }
  Claim ensure(std::span<const AdapterKey> keys) {
    std::vector<AdapterWant> wants;
    for (const auto key : keys) wants.push_back({key, host.at(key).size});
    const Claim outcome = take(device, wants, true, false);
    if (outcome == Claim::kClaimed) {
      for (const auto& want : wants) {
        if (device.find(want.key) == nullptr) device.entries.push_back({want.key, want.size, 1, false});
      }
    }
    return outcome;
  }
  bool loaded(AdapterKey key, AdapterSize size) {
    Entry* entry = host.find(key);
    if (entry == nullptr || !entry->loading) throw std::logic_error("loaded() for an entry that is not loading");
    const AdapterSize before = std::exchange(entry->size, AdapterSize());
    if (!makeRoom(host, size, {}, true)) {
      host.find(key)->size = before;
      return false;
    }
    entry = host.find(key);
    entry->size = size;
    entry->loading = false;
    ++loads;
    completeIfIdle(key);
    return true;
  }
  void failed(AdapterKey key) {
    if (!host.at(key).loading) throw std::logic_error("failed() for an entry that is not loading");
    host.drop(key);
    ++failures;
  }
  void release(AdapterKey key) {
    Entry* entry = host.find(key);
    if (entry == nullptr || entry->users == 0) throw std::logic_error("release() for an entry without users");
    --entry->users;
    completeIfIdle(key);
  }
  void leave(AdapterKey key) {
    Entry* entry = device.find(key);
    if (entry == nullptr || entry->users == 0) throw std::logic_error("leave() for an entry without users");
    const bool idle = --entry->users == 0;
    if (idle) moveToEnd(device, key);
  }
  AdapterKey renew(uint64_t task_id) {
    retire({task_id, generations[task_id]});
    return {task_id, generations[task_id] = ++generations_made};
  }
  AdapterKey end(uint64_t task_id) {
    const AdapterKey last{task_id, generations[task_id]};
    retire(last);
    generations.erase(task_id);
    return last;
  }

  // Applies an AdapterCache's operation; throws std::logic_error if the outcome differs.
  void replay(const AdapterCacheEvent& event) {
    using Kind = AdapterCacheEvent::Kind;
    const auto same = [](bool holds, const char* what) {
      if (!holds) throw std::logic_error(std::string("the plain cache's outcome differs: ") + what);
    };
    std::vector<AdapterKey> keys;
    for (const auto& want : event.wants) keys.push_back(want.key);
    switch (event.kind) {
      case Kind::kClaim:
        return same(claim(event.wants, event.may_load) == event.claim, "claim");
      case Kind::kLoaded:
        return same(loaded(keys.at(0), event.wants[0].size) == event.fits, "loaded");
      case Kind::kFailed:
        return failed(keys.at(0));
      case Kind::kRelease:
        for (const auto key : keys) release(key);
        return;
      case Kind::kRenew:
        return same(renew(keys.at(0).task_id) == keys.at(0), "renew");
      case Kind::kEnd:
        return same(end(keys.at(0).task_id) == keys.at(0), "end");
      case Kind::kEnsure:
        return same(ensure(keys) == event.claim, "ensure");
      case Kind::kLeave:
        for (const auto key : keys) leave(key);
        return;
    }
  }

 private:
  void retire(AdapterKey key) {
    const Entry* entry = host.find(key);
    if (entry == nullptr || !Level::idle(*entry)) return;
    host.drop(key);
    device.drop(key);
  }
  // Evicts idle entries that are not in `kept` until `size` fits. Returns false and evicts none if that is not enough.
  bool makeRoom(Level& level, AdapterSize size, std::span<const AdapterWant> kept, bool host_level) {
    const auto mayGo = [&](const Entry& entry) {
      return Level::idle(entry) &&
             std::none_of(kept.begin(), kept.end(), [&](const AdapterWant& want) { return want.key == entry.key; });
    };
    AdapterSize least = size;
    for (const auto& entry : level.entries) {
      if (!mayGo(entry)) least += entry.size;
    }
    if (!least.within(level.capacity)) return false;
    while (!(level.used() + size).within(level.capacity)) {
      const AdapterKey gone = std::find_if(level.entries.begin(), level.entries.end(), mayGo)->key;
      level.drop(gone);
      ++level.evictions;
      if (host_level && device.find(gone) != nullptr) {
        if (!Level::idle(device.at(gone))) throw std::logic_error("evicted from the host what is used on the device");
        device.drop(gone);
        ++device.evictions;
      }
    }
    return true;
  }
  Claim take(Level& level, std::span<const AdapterWant> wants, bool may_add, bool host_level) {
    AdapterSize all, missing;
    int64_t present = 0;
    for (const auto& want : wants) {
      const Entry* entry = level.find(want.key);
      all += entry != nullptr ? entry->size : want.size;
      if (entry == nullptr) missing += want.size;
      present += entry != nullptr ? 1 : 0;
    }
    const auto absent = static_cast<int64_t>(wants.size()) - present;
    if (absent > 0) {
      if (!all.within(level.capacity)) return Claim::kTooLarge;
      if (!may_add) return Claim::kAbsent;
      if (!makeRoom(level, missing, wants, host_level)) return Claim::kNoRoom;
    }
    level.hits += present;
    level.misses += absent;
    for (const auto& want : wants) {
      if (Entry* entry = level.find(want.key)) ++entry->users;
    }
    return Claim::kClaimed;
  }
  static void moveToEnd(Level& level, AdapterKey key) {
    const Entry entry = level.at(key);
    level.drop(key);
    level.entries.push_back(entry);
  }
  void completeIfIdle(AdapterKey key) {
    if (!Level::idle(host.at(key))) return;
    if (generations[key.task_id] == key.generation) return moveToEnd(host, key);
    host.drop(key);
    device.drop(key);
  }
};

}  // namespace chorus::testing
