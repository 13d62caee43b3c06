#include "runtime/adapter_cache/adapter_cache.h"

#include <cassert>
#include <utility>

namespace chorus {

AdapterCache::Claim AdapterCache::claim(std::span<const AdapterWant> wants, bool may_load,
                                        std::vector<AdapterKey>& to_load) {
  reserve(wants.size());
  const size_t before = to_load.size();
  const Claim outcome = host_.claim(wants, may_load, to_load);
  // A lease taken before a renewal may claim the old generation after it: such an entry leaves with its last user.
  for (size_t i = before; i < to_load.size(); ++i) {
    if (to_load[i].generation != generation(to_load[i].task_id)) host_.retire(to_load[i]);
  }
  follow(true);
  tell({.kind = AdapterCacheEvent::Kind::kClaim, .wants = wants, .may_load = may_load, .claim = outcome});
  return outcome;
}

void AdapterCache::release(std::span<const AdapterKey> keys) {
  wants_.clear();
  for (const AdapterKey key : keys) {
    host_.release(key);
    wants_.push_back({key, {}});
  }
  follow(false);
  tell({.kind = AdapterCacheEvent::Kind::kRelease, .wants = wants_});
}

bool AdapterCache::loaded(AdapterKey key, AdapterSize size) {
  const bool fits = host_.loaded(key, size);
  if (fits) ++loads_;
  follow(true);
  const AdapterWant want{key, size};
  tell({.kind = AdapterCacheEvent::Kind::kLoaded, .wants = {&want, 1}, .fits = fits});
  return fits;
}

void AdapterCache::failed(AdapterKey key) {
  host_.failed(key);
  ++failures_;
  const AdapterWant want{key, {}};
  tell({.kind = AdapterCacheEvent::Kind::kFailed, .wants = {&want, 1}});
}

AdapterCache::Claim AdapterCache::ensure(std::span<const AdapterKey> keys, std::vector<AdapterKey>& to_copy) {
  wants_.clear();
  for (const AdapterKey key : keys) {
    assert(host_.resident(key));
    wants_.push_back({key, host_.sizeOf(key)});
  }
  const size_t before = to_copy.size();
  const Claim outcome = device_.claim(wants_, true, to_copy);
  for (size_t i = before; i < to_copy.size(); ++i) device_.loaded(to_copy[i], host_.sizeOf(to_copy[i]));
  tell({.kind = AdapterCacheEvent::Kind::kEnsure, .wants = wants_, .claim = outcome});
  return outcome;
}

void AdapterCache::leave(std::span<const AdapterKey> keys) {
  wants_.clear();
  for (const AdapterKey key : keys) {
    device_.release(key);
    wants_.push_back({key, {}});
  }
  tell({.kind = AdapterCacheEvent::Kind::kLeave, .wants = wants_});
}

uint64_t AdapterCache::generation(uint64_t task_id) const {
  const auto found = generations_.find(task_id);
  return found == generations_.end() ? 0 : found->second;
}

AdapterKey AdapterCache::renew(uint64_t task_id) {
  reserve(0);
  const AdapterKey old{task_id, generation(task_id)};
  generations_[task_id] = generations_made_ + 1;
  const AdapterWant fresh{{task_id, ++generations_made_}, {}};
  host_.retire(old);
  follow(false);
  tell({.kind = AdapterCacheEvent::Kind::kRenew, .wants = {&fresh, 1}});
  return fresh.key;
}

// The claim of the entry has reserved the memory to list it as gone.
void AdapterCache::end(uint64_t task_id) noexcept {
  const auto found = generations_.find(task_id);
  if (found == generations_.end()) return;
  const AdapterWant last{{task_id, found->second}, {}};
  generations_.erase(found);
  host_.retire(last.key);
  follow(false);
  tell({.kind = AdapterCacheEvent::Kind::kEnd, .wants = {&last, 1}});
}

void AdapterCache::forgetGone() noexcept {
  gone_.clear();
  device_.clearGone();
}

// Reserves memory so that everything that leaves a level until the next call can be listed without an allocation.
void AdapterCache::reserve(size_t wants) {
  gone_.reserve(gone_.size() + host_.entries() + wants);
  wants_.reserve(wants);
}

// An adapter that left the host level leaves the device level too.
void AdapterCache::follow(bool evicted) {
  for (const AdapterKey key : host_.gone()) {
    if (evicted)
      device_.evict(key);
    else
      device_.retire(key);
    gone_.push_back(key);
  }
  host_.clearGone();
}

void AdapterCache::tell(AdapterCacheEvent event) {
  if (observer_) observer_(event);
}

}  // namespace chorus
