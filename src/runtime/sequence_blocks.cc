#include "runtime/sequence_blocks.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace chorus {
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

SequenceBlocks::SequenceBlocks(const CoreOptions& options)
    : options_(options),
      blocks_({.num_blocks = options.scheduler.kv_blocks,
               .tokens_per_block = options.scheduler.kv.tokens_per_block,
               .num_slots = options.scheduler.max_batch_size,
               .max_seq_len = options.requests.max_seq_len,
               .windows = options.scheduler.kv.windows},
              {&cache_namespaces_, &scopes_}),
      free_slots_(static_cast<size_t>(options.scheduler.max_batch_size)) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
}

// Assigns the cache namespace and the eviction scope once the adapter is loaded. They depend on the content that was
// loaded, which may differ from what was registered.
void SequenceBlocks::findCacheNamespace(Sequence& sequence) {
  if (sequence.cache_namespace != 0 || !sequence.adapter.ready()) return;
  Request& request = sequence.request;
  const auto* parts = sequence.adapter.parts.get();
  assert(parts == nullptr || !parts->content_hash.empty());
  // The scope leaves out a composition's members and the salt's value: a client can send any number of them, and each
  // would otherwise get its own share of the cache.
  std::string scope;
  addNumber(scope, 'c', request.client_id);
  if (sequence.adapter.composition != nullptr)
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
    if (of_client) addNumber(key, 'c', request.client_id);
    cache_namespace = cache_namespaces_.acquire(key);
  } else if (request.several()) {
    uint64_t& shared = request.cache_namespace;
    if (shared == 0)
      shared = cache_namespaces_.acquireFresh();
    else
      cache_namespaces_.retain(shared);
    ++request.namespace_users;
    cache_namespace = shared;
  } else {
    return;
  }
  try {
    sequence.cache_scope = scopes_.acquire(scope);
  } catch (...) {
    leave(request, cache_namespace);
    throw;
  }
  sequence.cache_namespace = cache_namespace;
}

// When its last user leaves, the request forgets its own namespace, because the number may be assigned to another one.
void SequenceBlocks::leave(Request& request, uint64_t cache_namespace) noexcept {
  cache_namespaces_.release(cache_namespace);
  if (options_.block_reuse || !request.several()) return;
  if (--request.namespace_users == 0) request.cache_namespace = 0;
}

void SequenceBlocks::leaveCacheNamespace(Sequence& sequence) noexcept {
  if (sequence.cache_namespace == 0) return;
  leave(sequence.request, std::exchange(sequence.cache_namespace, 0));
  scopes_.release(std::exchange(sequence.cache_scope, 0));
}

void SequenceBlocks::view(Sequence& sequence, RequestView& view) {
  findCacheNamespace(sequence);
  view.num_cached = sequence.numCached();
  if (sequence.runs()) view.blocks_held = blocks_.heldLasting(sequence.slot());
  if (!reuses(sequence)) return;
  if (sequence.runs()) {
    if (!sequence.generates()) {
      view.next_block =
          blocks_.nextBlock(sequence.slot(), sequence.cache_namespace, sequence.tokens(), sequence.numCached());
    }
    return;
  }
  const int32_t reusable = sequence.request.answerOf(sequence).reusableTokens(sequence);
  const PrefixMatch match = blocks_.match(sequence.cache_namespace, sequence.tokens(), reusable);
  view.num_cached = match.blocks * blocks_.tokensPerBlock();
  view.blocks_held = match.held;
  view.blocks_taken = match.cached;
  view.next_block = match.next_block;
  view.can_reuse_next = match.next_block != 0 && view.num_cached + blocks_.tokensPerBlock() <= reusable;
}

void SequenceBlocks::countFreed(std::span<Sequence* const> running, bool for_clients, std::span<RequestView> views) {
  if (for_clients) {
    for (size_t i = 0; i < running.size(); ++i) views[i].blocks_alone = blocks_.usedAlone(running[i]->slot());
  }
  if (options_.scheduler.policy != executor::CapacitySchedulerPolicy::kMAX_UTILIZATION) return;
  slots_from_back_.clear();
  for (auto sequence = running.rbegin(); sequence != running.rend(); ++sequence) {
    slots_from_back_.push_back((*sequence)->slot());
  }
  freed_from_back_.resize(slots_from_back_.size());
  blocks_.freedBy(slots_from_back_, freed_from_back_);
  for (size_t i = 0; i < freed_from_back_.size(); ++i) {
    views[i].blocks_freed = freed_from_back_[freed_from_back_.size() - 1 - i];
  }
}

void SequenceBlocks::start(Sequence& sequence, uint64_t step) noexcept {
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  blocks_.occupy(slot, sequence.cache_scope);
  if (!reuses(sequence)) return sequence.start(slot, 0, 0, step);
  Answer& answer = sequence.request.answerOf(sequence);
  const auto tokens = sequence.tokens();
  const PrefixMatch match = blocks_.match(sequence.cache_namespace, tokens, answer.reusableTokens(sequence));
  blocks_.reuse(slot, sequence.cache_namespace, tokens, match.blocks);
  const int32_t missed = (blocks_.blocksFor(sequence.numTokens()) - match.blocks) * blocks_.numGroups();
  const int32_t reused = match.blocks * blocks_.numGroups();
  stats_.reusedBlocks += reused;
  stats_.missedBlocks += missed;
  stats_.allocTotalBlocks += reused;
  sequence.start(slot, match.blocks * blocks_.tokensPerBlock(), blocks_.held(slot), step);
  answer.countStart(sequence, reused, missed);
}

void SequenceBlocks::extend(Sequence& sequence, int32_t step_tokens) {
  if (!blocks_.extend(sequence.slot(), sequence.numTokens(), sequence.numCached() + step_tokens)) {
    fail(ErrorCode::kInternal, "the KV cache has too few free blocks for the planned step");
  }
  const int32_t blocks = blocks_.held(sequence.slot());
  const int32_t added = blocks - sequence.blocksHeld();
  stats_.allocNewBlocks += added;
  stats_.allocTotalBlocks += added;
  sequence.request.answerOf(sequence).countNewBlocks(added);
  sequence.hold(blocks);
}

BlockTables SequenceBlocks::tables(const Sequence& sequence, int32_t tokens) const {
  return blocks_.tables(sequence.slot(), tokens);
}

void SequenceBlocks::commit(Sequence& sequence) {
  if (reuses(sequence)) {
    blocks_.commitBlocks(sequence.slot(), sequence.cache_namespace,
                         sequence.tokens().first(static_cast<size_t>(sequence.numCached())));
  }
  blocks_.slideWindows(sequence.slot(), sequence.numCached());
  sequence.hold(blocks_.held(sequence.slot()));
}

void SequenceBlocks::release(const Sequence& sequence) noexcept {
  blocks_.release(sequence.slot());
  free_slots_.push_back(sequence.slot());
}

const executor::KvCacheStats& SequenceBlocks::count() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  blocks_.setTime(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  stats_.maxNumBlocks = blocks_.numBlocks();
  stats_.freeNumBlocks = blocks_.freeBlocks();
  stats_.usedNumBlocks = blocks_.usedBlocks();
  stats_.cachedNumBlocks = blocks_.cachedBlocks();
  stats_.tokensPerBlock = blocks_.tokensPerBlock();
  stats_.blockBytes = options_.kv_block_bytes;
  const int32_t looked_for = stats_.reusedBlocks + stats_.missedBlocks;
  if (looked_for > 0) {
    stats_.cacheHitRate = static_cast<float>(stats_.reusedBlocks) / static_cast<float>(looked_for);
  }
  return stats_;
}

}  // namespace chorus
