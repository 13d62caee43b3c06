#include "runtime/adapter_cache/adapter_store.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/error.h"

namespace chorus {
namespace {

AdapterSize sizeOfParts(const PreparedAdapter& parts) { return {static_cast<int64_t>(parts.bytes), parts.elements}; }

executor::AdapterCacheLevelStats statsOf(const AdapterLevel& level) {
  executor::AdapterCacheLevelStats stats;
  stats.residentAdapters = static_cast<executor::SizeType32>(level.entries());
  stats.pinnedAdapters = static_cast<executor::SizeType32>(level.pinned());
  stats.residentBytes = level.used().bytes;
  stats.maxBytes = level.capacity().bytes;
  stats.hits = level.hits();
  stats.misses = level.misses();
  stats.evictions = level.evictions();
  return stats;
}

}  // namespace

AdapterStore::AdapterStore(const AdapterCapacity& capacity, LoadAdapter load, ComposeAdapters compose, int workers,
                           std::function<void()> on_loaded)
    : cache_(capacity.host, capacity.device),
      reject_when_full_(capacity.reject_when_full),
      compose_(std::move(compose)),
      loader_(std::move(load), workers, std::move(on_loaded)) {}

void AdapterStore::set(Task& task, AdapterKey key, uint64_t number,
                       const std::shared_ptr<const AdapterSource>& source) {
  task.key = key;
  task.number = number;
  task.known = source != nullptr;
  task.content_hash = source != nullptr ? source->content_hash : "";
  task.directory = source != nullptr && source->reloadable() ? source : nullptr;
  task.tensors = source;
}

void AdapterStore::renew(uint64_t task_id, const std::shared_ptr<const AdapterSource>& source) {
  Task& task = tasks_[task_id];
  const AdapterKey key = cache_.renew(task_id);
  set(task, key, ++numbers_, source);
  forgetGone();
}

void AdapterStore::registerSource(uint64_t task_id, std::shared_ptr<const AdapterSource> source, uint64_t change) {
  keepReplaced(task_id, change);
  renew(task_id, source);
}

void AdapterStore::unregister(uint64_t task_id, uint64_t change) {
  keepReplaced(task_id, change);
  forget(task_id);
}

void AdapterStore::forget(uint64_t task_id) noexcept {
  tasks_.erase(task_id);
  cache_.end(task_id);
  forgetGone();
}

void AdapterStore::keepReplaced(uint64_t task_id, uint64_t change) {
  Replaced& replaced = replaced_[{task_id, change}];
  if (!knows(task_id)) return;
  replaced.task = tasks_.at(task_id);
  replaced.source = sourceOf(replaced.task);
  if (replaced.source == nullptr) replaced.parts = parts(replaced.task.key);
}

AdapterStore::Replaced* AdapterStore::replacedOf(uint64_t task_id, uint64_t changes_seen) {
  const auto next = replaced_.upper_bound({task_id, changes_seen});
  return next != replaced_.end() && next->first.first == task_id ? &next->second : nullptr;
}

void AdapterStore::forgetReplaced(uint64_t changes_seen) noexcept {
  std::erase_if(replaced_, [&](const auto& replaced) { return replaced.first.second <= changes_seen; });
}

void AdapterStore::bring(uint64_t task_id, const std::shared_ptr<const AdapterSource>& tensors, uint64_t changes_seen) {
  Replaced* const replaced = replacedOf(task_id, changes_seen);
  Task& task = replaced != nullptr ? replaced->task : tasks_[task_id];
  if (task.known && task.content_hash == tensors->content_hash) {
    // If a request sends the weights that the task already has, the task keeps its adapter.
    task.tensors = tensors;
  } else if (replaced == nullptr) {
    renew(task_id, tensors);
  } else {
    // A key that is never the task's current one.
    constexpr uint64_t kBrought = uint64_t{1} << 63;
    set(task, {task_id, kBrought | ++brought_}, ++numbers_, tensors);
  }
  if (replaced != nullptr) replaced->source = sourceOf(task);
}

bool AdapterStore::knows(uint64_t task_id) const {
  const auto found = tasks_.find(task_id);
  return found != tasks_.end() && found->second.known;
}

uint64_t AdapterStore::addMember(uint64_t task_id, AdapterLease& lease, uint64_t changes_seen) {
  const Replaced* const replaced = replacedOf(task_id, changes_seen);
  if (replaced != nullptr ? replaced->task.known : knows(task_id)) {
    const Task& task = replaced != nullptr ? replaced->task : tasks_.at(task_id);
    AdapterMember member{
        .key = task.key, .source = replaced != nullptr ? replaced->source : sourceOf(task), .parts = nullptr};
    // Holding the packed weights keeps the request servable even if the cache evicts them before its turn.
    if (member.source == nullptr) member.parts = replaced != nullptr ? replaced->parts : parts(task.key);
    if (member.source != nullptr || member.parts != nullptr) {
      const bool known = std::any_of(lease.members.begin(), lease.members.end(),
                                     [&](const AdapterMember& other) { return other.key == task.key; });
      if (!known) {
        lease.members.push_back(std::move(member));
        lease.uses.push_back({task.number, {}});
      }
      return task.number;
    }
  }
  throw unusable(ErrorCode::kNotFound, task_id, "not found in cache. Please send LoRA weights with request");
}

namespace {

// Throws Error if the member cannot be composed, even alone with weight 1, where it would run as the adapter itself.
void refuseToCompose(const AdapterMember& member) {
  const std::string& refusal = member.parts->composition_refusal;
  if (refusal.empty()) return;
  throw unusable(ErrorCode::kUnsupported, member.key.task_id, refusal + ": it cannot be composed with others");
}
}  // namespace

AdapterLease AdapterStore::lease(const executor::LoraConfig& config, std::shared_ptr<const AdapterSource> source,
                                 uint64_t changes_seen) {
  const uint64_t task_id = config.getTaskId();
  if (source != nullptr) bring(task_id, source, changes_seen);
  AdapterLease lease;
  lease.number = addMember(task_id, lease, changes_seen);
  return lease;
}

AdapterLease AdapterStore::lease(std::span<const executor::WeightedLora> terms, uint64_t changes_seen) {
  AdapterLease lease;
  lease.is_composed = true;
  std::vector<std::pair<uint64_t, float>> numbers;
  for (const auto& term : terms) numbers.emplace_back(addMember(term.taskId, lease, changes_seen), term.weight);
  if (numbers.size() == 1 && numbers[0].second == 1.0f) {
    lease.number = numbers[0].first;
  } else {
    lease.composition = compositionOf(std::move(numbers));
    lease.number = lease.composition->number;
  }
  return lease;
}

std::shared_ptr<AdapterComposition> AdapterStore::compositionOf(std::vector<std::pair<uint64_t, float>> terms) {
  const auto found = compositions_.find(terms);
  if (found != compositions_.end()) {
    if (auto known = found->second.lock()) return known;
  }
  auto composition = std::make_shared<AdapterComposition>();
  composition->terms = std::move(terms);
  composition->number = ++numbers_;
  compositions_[composition->terms] = composition;
  return composition;
}

AdapterSize AdapterStore::sizeOf(const AdapterMember& member) const {
  if (member.parts != nullptr) return sizeOfParts(*member.parts);
  // The loaded adapter may fit even if the upper bound of its size does not: claim at most the whole level, unless the
  // adapter needs more in any case.
  const AdapterSize &capacity = cache_.host().capacity(), most = member.source->size(),
                    least = member.source->leastSize();
  return {std::max(least.bytes, std::min(most.bytes, capacity.bytes)),
          std::max(least.elements, std::min(most.elements, capacity.elements))};
}

void AdapterStore::beginClaims() {
  may_load_ = true;
  claims_left_ = std::numeric_limits<int32_t>::max();
}

bool AdapterStore::leavesRoom(const AdapterLease& lease, const ClientClaims& own) const {
  const AdapterLevel& host = cache_.host();
  AdapterSize claimed, added, total;
  const auto counts = [&](AdapterKey key) { return !pinned_.contains(key); };
  for (const AdapterKey key : own.adapters) {
    if (host.contains(key) && counts(key)) claimed += host.sizeOf(key);
  }
  for (const AdapterMember& member : lease.members) {
    const AdapterSize size = host.contains(member.key) ? host.sizeOf(member.key) : sizeOf(member);
    total += size;
    if (!own.adapters.contains(member.key) && counts(member.key)) claimed += size;
    if (!host.contains(member.key) || !host.isPinned(member.key)) added += size;
  }
  if (added == AdapterSize()) return true;
  const AdapterSize left = host.capacity() - host.pinnedSize() - added;
  if (!total.within(host.capacity()) || !AdapterSize().within(left)) return true;
  if (!own.adapters.empty()) return claimed.within(left);
  if (lease.members.size() == 1 || claimed.within(host.capacity() - claimed)) return true;
  throw cacheFull(ErrorCode::kBusy, lease.members.front().key.task_id);
}

void AdapterStore::claim(std::span<AdapterLease* const> leases, int32_t times_bypassed, int32_t max_bypasses,
                         ClientClaims* own) {
  int32_t wanted = 0;
  for (const AdapterLease* lease : leases) {
    if (lease->claimed && !may_load_) --claims_left_;
    if (lease->used() && !lease->claimed) ++wanted;
  }
  if (wanted == 0 || claims_left_ < wanted) return;
  for (AdapterLease* lease : leases) {
    if (lease->claimed) continue;
    if (own != nullptr && (own->closed || !leavesRoom(*lease, *own))) {
      own->closed = own->closed || times_bypassed >= max_bypasses;
      for (AdapterLease* other : leases) other->no_room = true;
      return;
    }
    if (claimNow(*lease)) {
      if (!may_load_) --claims_left_;
      continue;
    }
    if ((reject_when_full_ && !cache_.host().willHaveRoom(wants_)) || needsPinnedRoom())
      throw cacheFull(ErrorCode::kBusy, lease->members.front().key.task_id);
    // The sequences use the same adapters: if one of them found no room, neither do the others.
    for (AdapterLease* other : leases) other->no_room = true;
    if (reject_when_full_) return;
    may_load_ = false;
    claims_left_ = std::min(claims_left_, max_bypasses - times_bypassed);
    return;
  }
}

AdapterSize AdapterStore::sizeOf(const AdapterLease& lease) const {
  AdapterSize total;
  for (const AdapterMember& member : lease.members) total += sizeOf(member);
  return total;
}

bool AdapterStore::sizeIsKnown(const AdapterLease& lease) const {
  return std::ranges::all_of(lease.members, [](const AdapterMember& member) {
    return member.parts != nullptr || member.source->sizeIsExact();
  });
}

void AdapterStore::setPinned(AdapterKey key, bool pinned) {
  if (pinned) {
    pinned_.insert(key);
  } else {
    pinned_.erase(key);
  }
}

bool AdapterStore::needsPinnedRoom() const {
  const AdapterLevel& host = cache_.host();
  AdapterSize total;
  for (const AdapterWant& want : wants_) total += host.contains(want.key) ? host.sizeOf(want.key) : want.size;
  for (const AdapterKey key : pinned_) {
    const bool wanted = std::ranges::any_of(wants_, [&](const AdapterWant& want) { return want.key == key; });
    if (!wanted) total += host.sizeOf(key);
  }
  return !total.within(host.capacity());
}

bool AdapterStore::claimNow(AdapterLease& lease) {
  wants_.clear();
  for (const AdapterMember& member : lease.members) wants_.push_back({member.key, sizeOf(member)});
  keys_.reserve(wants_.size());
  added_.clear();
  switch (cache_.claim(wants_, may_load_, added_)) {
    case AdapterCache::Claim::kTooLarge:
      throw cacheFull(ErrorCode::kTooLarge, lease.members.front().key.task_id);
    case AdapterCache::Claim::kNoRoom:
    case AdapterCache::Claim::kAbsent:
      return false;
    case AdapterCache::Claim::kClaimed:
      break;
  }
  lease.claimed = true;
  lease.no_room = false;
  forgetGone();
  size_t given = 0;
  try {
    for (; given < lease.members.size(); ++given) giveMember(lease.members[given], lease.client);
  } catch (...) {
    // Only the members before `given` are loaded or loading. Of the other members, nobody loads the entries that this
    // claim added, so they have failed. All other members are released.
    for (size_t i = 0; i < lease.members.size(); ++i) {
      const AdapterKey key = lease.members[i].key;
      if (i >= given && wasAdded(key))
        cache_.failed(key);
      else
        cache_.release({&key, 1});
    }
    lease.claimed = false;
    forgetGone();
    throw;
  }
  settle(lease);
  return true;
}

bool AdapterStore::wasAdded(AdapterKey key) const {
  return std::find(added_.begin(), added_.end(), key) != added_.end();
}

// Sets the packed weights of a claimed member if the cache has them. A new entry is filled from the member's own packed
// weights or submitted to the loader.
void AdapterStore::giveMember(AdapterMember& member, std::optional<uint64_t> client) {
  if (wasAdded(member.key) && member.parts != nullptr) {
    parts_[member.key] = member.parts;
    [[maybe_unused]] const bool fits = cache_.loaded(member.key, sizeOf(member));
    assert(fits);
  } else if (wasAdded(member.key)) {
    loader_.submit(member.key, member.source, client);
  }
  member.parts = parts(member.key);
}

// Sets lease.parts once all members are loaded. Throws Error if they are too large for the device level or cannot be
// composed.
void AdapterStore::settle(AdapterLease& lease) {
  bool ready = true;
  AdapterSize total;
  for (size_t i = 0; i < lease.members.size(); ++i) {
    AdapterMember& member = lease.members[i];
    if (member.parts == nullptr) {
      ready = false;
      continue;
    }
    // The request's tensors, kept beside their packed weights, would double the memory.
    member.source.reset();
    lease.uses[i].size = sizeOfParts(*member.parts);
    total += lease.uses[i].size;
  }
  if (!total.within(cache_.device().capacity()))
    throw cacheFull(ErrorCode::kTooLarge, lease.members.front().key.task_id);
  if (!ready) return;
  if (lease.is_composed) {
    for (const AdapterMember& member : lease.members) refuseToCompose(member);
  }
  if (lease.composition == nullptr) {
    lease.parts = lease.members.front().parts;
  } else {
    auto described = std::make_shared<PreparedAdapter>();
    described->content_hash = composedHash(termsOf(lease));
    lease.parts = lease.described = std::move(described);
  }
}

std::vector<WeightedAdapter> AdapterStore::termsOf(const AdapterLease& lease) {
  std::vector<WeightedAdapter> terms;
  for (const auto& [number, weight] : lease.composition->terms) {
    const auto use = std::find_if(lease.uses.begin(), lease.uses.end(),
                                  [n = number](const AdapterUse& other) { return other.number == n; });
    const AdapterMember& member = lease.members[static_cast<size_t>(use - lease.uses.begin())];
    terms.push_back({member.parts, weight});
  }
  return terms;
}

std::shared_ptr<const PreparedAdapter> AdapterStore::compose(const AdapterLease& lease) const {
  if (auto made = lease.composition->parts.lock()) return made;
  auto made = compose_(termsOf(lease));
  lease.composition->parts = made;
  return made;
}

void AdapterStore::give(const AdapterLoad& load, AdapterLease& lease) {
  if (!lease.claimed || lease.parts != nullptr) return;
  const auto waits = [&](const AdapterMember& member) { return member.key == load.key && member.parts == nullptr; };
  const auto member = std::find_if(lease.members.begin(), lease.members.end(), waits);
  if (member == lease.members.end()) return;
  if (load.parts == nullptr) {
    lease.members.erase(member);  // takeLoaded() has removed the entry and its claims
    if (load.failure == nullptr) throw std::bad_alloc();
    throw AdapterError(*load.failure);
  }
  member->parts = load.parts;
  settle(lease);
}

std::span<const AdapterKey> AdapterStore::keysOf(const AdapterLease& lease) {
  keys_.clear();
  for (const AdapterMember& member : lease.members) keys_.push_back(member.key);
  return keys_;
}

// A backend with device memory would copy the added adapters here and hand the copies to the lease.
void AdapterStore::ensure(AdapterLease& lease) {
  if (!lease.used()) return;
  assert(lease.ready() && !lease.on_device);
  if (lease.composition != nullptr) lease.parts = compose(lease);
  added_.clear();
  if (cache_.ensure(keysOf(lease), added_) != AdapterCache::Claim::kClaimed)
    fail(ErrorCode::kInternal, "the adapters of a planned step do not fit into the device level of the cache");
  lease.on_device = true;
}

void AdapterStore::leave(AdapterLease& lease) {
  if (!std::exchange(lease.on_device, false)) return;
  cache_.leave(keysOf(lease));
  if (lease.composition != nullptr) lease.parts = lease.described;
}

void AdapterStore::release(AdapterLease& lease) {
  leave(lease);
  if (lease.claimed) cache_.release(keysOf(lease));
  const auto composition = std::move(lease.composition);
  lease = AdapterLease();
  if (composition.use_count() == 1) compositions_.erase(composition->terms);
  forgetGone();
}

std::optional<AdapterLoad> AdapterStore::takeLoaded() {
  std::optional<AdapterLoad> taken = loader_.takeDone();
  if (!taken) return std::nullopt;
  AdapterLoad& load = *taken;
  try {
    if (load.parts == nullptr) {
      load.failure = std::make_shared<const AdapterError>(loadFailed(load.error_code, load.key.task_id, load.error));
    } else {
      auto& place = parts_[load.key];
      const AdapterSize size = sizeOfParts(*load.parts);
      if (cache_.loaded(load.key, size)) {
        place = load.parts;
        const auto& bounds = executor::AdapterLoadTimes::kBounds;
        const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), load.seconds) - bounds.begin();
        ++load_times_.counts[static_cast<size_t>(bucket)];
        load_times_.seconds += load.seconds;
        forgetGone();
        return taken;
      }
      parts_.erase(load.key);
      load.parts.reset();
      const bool fits_alone = size.within(cache_.host().capacity());
      const ErrorCode code = fits_alone ? ErrorCode::kBusy : ErrorCode::kTooLarge;
      load.failure = std::make_shared<const AdapterError>(cacheFull(code, load.key.task_id));
    }
  } catch (const std::bad_alloc&) {
    load.parts.reset();
  }
  cache_.failed(load.key);
  // Tensors that failed to load are forgotten: the next request for the task id must bring weights again.
  const auto task = tasks_.find(load.key.task_id);
  if (task != tasks_.end() && task->second.key == load.key && task->second.directory == nullptr) {
    forget(load.key.task_id);
  }
  for (auto& [_, replaced] : replaced_) {
    if (replaced.task.key == load.key && replaced.task.directory == nullptr) replaced.task.known = false;
  }
  return taken;
}

executor::AdapterCacheStats AdapterStore::stats() const {
  return {.host = statsOf(cache_.host()),
          .device = statsOf(cache_.device()),
          .loads = cache_.loads(),
          .failedLoads = cache_.failures(),
          .loadTimes = load_times_};
}

std::vector<executor::AdapterState> AdapterStore::states(uint64_t first, size_t most) const {
  using Place = executor::AdapterState::Place;
  std::vector<executor::AdapterState> states;
  for (auto at = tasks_.lower_bound(first); at != tasks_.end() && states.size() < most; ++at) {
    const Task& task = at->second;
    if (!task.known) continue;
    executor::AdapterState& state = states.emplace_back();
    state.taskId = at->first;
    state.contentHash = task.content_hash;
    const auto source = sourceOf(task);
    if (source != nullptr) {
      state.bytes = source->size().bytes;
      if (state.contentHash.empty() && source->learned != nullptr) state.contentHash = source->learned->hash();
    }
    if (!cache_.host().contains(task.key)) continue;
    state.bytes = cache_.host().sizeOf(task.key).bytes;
    state.users = cache_.host().usersOf(task.key);
    if (cache_.device().contains(task.key)) {
      state.place = Place::kDEVICE;
    } else {
      state.place = cache_.host().resident(task.key) ? Place::kHOST : Place::kLOADING;
    }
  }
  return states;
}

std::shared_ptr<const PreparedAdapter> AdapterStore::parts(AdapterKey key) const {
  const auto found = parts_.find(key);
  return found == parts_.end() ? nullptr : found->second;
}

void AdapterStore::forgetGone() {
  for (const AdapterKey key : cache_.goneFromHost()) parts_.erase(key);
  cache_.forgetGone();
}

}  // namespace chorus
