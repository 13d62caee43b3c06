// KV blocks of ExecutorCore: cache namespaces, reuse, allocation and release.
#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/executor_core.h"

namespace chorus {

bool ExecutorCore::reuses(const ActiveRequest& request) const { return request.cache_namespace != 0; }

namespace {

// The length prefix keeps different lists of parts from giving the same key.
void addPart(std::string& key, char kind, std::string_view part) {
  key += fmt::format("{}{}:{}", kind, part.size(), part);
}
template <typename Number>
void addNumber(std::string& key, char kind, const std::optional<Number>& number) {
  if (number) addPart(key, kind, fmt::format("{:x}", *number));
}

}  // namespace

// Assigns the cache namespace and the eviction scope once the adapter is loaded. They depend on the content that was
// loaded, which may differ from what was registered. If it throws std::bad_alloc, nothing has changed.
void ExecutorCore::findCacheNamespace(ActiveRequest& request) {
  if (request.cache_namespace != 0 || !request.adapter.ready()) return;
  const auto* parts = request.adapter.parts.get();
  assert(parts == nullptr || !parts->content_hash.empty());
  // The scope leaves out a composition's members and the salt's value: a client can send any number of them, and each
  // would otherwise get its own share of the cache.
  std::string scope;
  addNumber(scope, 'c', request.clientId());
  if (request.adapter.composition != nullptr)
    addPart(scope, '+', "");
  else if (parts != nullptr)
    addPart(scope, 'a', parts->content_hash);
  if (request.cache_salt) addPart(scope, 's', "");
  uint64_t cache_namespace = 0;
  if (options_.block_reuse) {
    using Scope = executor::KvReuseScope;
    const bool of_client =
        options_.reuse_scope == Scope::kCLIENT || (options_.reuse_scope == Scope::kADAPTER && parts == nullptr);
    std::string key;
    if (parts != nullptr) addPart(key, 'a', parts->content_hash);
    addNumber(key, 's', request.cache_salt);
    if (of_client) addNumber(key, 'c', request.clientId());
    cache_namespace = cache_namespaces_.acquire(key);
  } else if (request.group != nullptr) {
    uint64_t& shared = request.group->cache_namespace;
    if (shared == 0) {
      shared = cache_namespaces_.acquireFresh();
      ++request.group->namespace_users;
    } else {
      cache_namespaces_.retain(shared);
      ++request.group->namespace_users;
    }
    cache_namespace = shared;
  } else {
    return;
  }
  try {
    request.cache_scope = scopes_.acquire(scope);
  } catch (...) {
    leaveCacheNamespaceOf(request, cache_namespace);
    throw;
  }
  request.cache_namespace = cache_namespace;
}

// When its last user leaves, the group forgets its namespace, because the number may be assigned to another one.
void ExecutorCore::leaveCacheNamespaceOf(ActiveRequest& request, uint64_t cache_namespace) noexcept {
  cache_namespaces_.release(cache_namespace);
  if (options_.block_reuse || request.group == nullptr) return;
  if (--request.group->namespace_users == 0) request.group->cache_namespace = 0;
}

void ExecutorCore::leaveCacheNamespace(ActiveRequest& request) noexcept {
  if (request.cache_namespace == 0) return;
  leaveCacheNamespaceOf(request, std::exchange(request.cache_namespace, 0));
  scopes_.release(std::exchange(request.cache_scope, 0));
}

RequestView ExecutorCore::viewOf(ActiveRequest& request) {
  findCacheNamespace(request);
  RequestView view = request.view();
  if (view.running) view.steps_run = static_cast<int32_t>(iterations_ - request.started_at);
  if (!reuses(request)) return view;
  if (view.running) {
    if (!view.generating) {
      view.next_block = blocks_.nextBlock(request.slot, request.cache_namespace, request.tokens(), request.num_cached);
    }
    return view;
  }
  const int32_t reusable = request.reusableTokens();
  const PrefixMatch match = blocks_.match(request.cache_namespace, request.tokens(), reusable);
  view.num_cached = match.blocks * blocks_.tokensPerBlock();
  view.blocks_held = match.blocks;
  view.blocks_taken = match.cached;
  view.next_block = match.next_block;
  view.can_reuse_next = match.next_block != 0 && view.num_cached + blocks_.tokensPerBlock() <= reusable;
  return view;
}

// Fills blocks_alone and blocks_freed of the running views, but only if a sequence may be paused: for another client
// or under kMAX_UTILIZATION.
void ExecutorCore::countFreed() {
  if (waiting_.numClients() > 1 && candidates_.size() > running_.size()) {
    for (size_t i = 0; i < running_.size(); ++i) views_[i].blocks_alone = blocks_.usedAlone(running_[i]->slot);
  }
  if (options_.scheduler.policy != executor::CapacitySchedulerPolicy::kMAX_UTILIZATION) return;
  slots_from_back_.clear();
  for (auto request = running_.rbegin(); request != running_.rend(); ++request) {
    slots_from_back_.push_back((*request)->slot);
  }
  freed_from_back_.resize(slots_from_back_.size());
  blocks_.freedBy(slots_from_back_, freed_from_back_);
  for (size_t i = 0; i < freed_from_back_.size(); ++i) {
    views_[i].blocks_freed = freed_from_back_[freed_from_back_.size() - 1 - i];
  }
}

// Runs for all starting requests before the first extend(), because new blocks may evict cached blocks that a starting
// request reuses.
void ExecutorCore::start(ActiveRequest& request) noexcept {
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  waiting_.start(request);
  running_.push_back(&request);
  request.started_at = iterations_;
  leftQueue(request);
  blocks_.occupy(slot, request.cache_scope);
  if (!reuses(request)) return request.start(slot, 0, 0, 0);
  const PrefixMatch match = blocks_.match(request.cache_namespace, request.tokens(), request.reusableTokens());
  blocks_.reuse(slot, request.cache_namespace, request.tokens(), match.blocks);
  const int32_t missed = blocks_.blocksFor(request.numTokens()) - match.blocks;
  kv_stats_.reusedBlocks += match.blocks;
  kv_stats_.missedBlocks += missed;
  kv_stats_.allocTotalBlocks += match.blocks;
  request.start(slot, match.blocks * blocks_.tokensPerBlock(), match.blocks, missed);
}

void ExecutorCore::extend(ActiveRequest& request) {
  [[maybe_unused]] const bool has_blocks = blocks_.extend(request.slot, request.numTokens());
  assert(has_blocks);
  const auto blocks = static_cast<int32_t>(blocks_.table(request.slot).size());
  kv_stats_.allocNewBlocks += blocks - request.blocks_held;
  kv_stats_.allocTotalBlocks += blocks - request.blocks_held;
  request.hold(blocks);
}

void ExecutorCore::commitBlocks(ActiveRequest& request) {
  if (!reuses(request)) return;
  blocks_.commitBlocks(request.slot, request.cache_namespace,
                       request.tokens().first(static_cast<size_t>(request.num_cached)));
}

void ExecutorCore::countBlocks() {
  blocks_.setTime(std::chrono::duration_cast<std::chrono::seconds>(Clock::now().time_since_epoch()).count());
  kv_stats_.maxNumBlocks = blocks_.numBlocks();
  kv_stats_.freeNumBlocks = blocks_.freeBlocks();
  kv_stats_.usedNumBlocks = blocks_.usedBlocks();
  kv_stats_.cachedNumBlocks = blocks_.cachedBlocks();
  kv_stats_.tokensPerBlock = blocks_.tokensPerBlock();
  kv_stats_.blockBytes = options_.kv_block_bytes;
  const int32_t looked_for = kv_stats_.reusedBlocks + kv_stats_.missedBlocks;
  if (looked_for > 0) {
    kv_stats_.cacheHitRate = static_cast<float>(kv_stats_.reusedBlocks) / static_cast<float>(looked_for);
  }
}

}  // namespace chorus
