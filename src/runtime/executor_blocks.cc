// The KV blocks of ExecutorCore: what a request reuses, holds and leaves to others.
#include <algorithm>
#include <cassert>

#include "runtime/executor_core.h"

namespace chorus {

bool ExecutorCore::reuses(const ActiveRequest& request) const { return request.reuse_realm != 0; }

// Once the adapter is there: what is loaded counts, not what was registered.
void ExecutorCore::findRealm(ActiveRequest& request) {
  if (request.reuse_realm != 0 || !request.adapter.ready()) return;
  if (!options_.block_reuse) {
    if (request.group == nullptr) return;
    if (request.group->reuse_realm == 0) request.group->reuse_realm = realms_.fresh();
    request.reuse_realm = request.group->reuse_realm;
    return;
  }
  static const std::string kBase;
  const auto* parts = request.adapter.parts.get();
  assert(parts == nullptr || !parts->content_hash.empty());
  request.reuse_realm = realms_.number(parts != nullptr ? parts->content_hash : kBase, "");
}

RequestView ExecutorCore::viewOf(ActiveRequest& request) {
  findRealm(request);
  RequestView view = request.view();
  if (!reuses(request)) return view;
  if (view.running) {
    if (!view.generating) {
      view.next_block = blocks_.nextBlock(request.slot, request.reuse_realm, request.tokens(), request.num_cached);
    }
    return view;
  }
  const int32_t reusable = request.reusableTokens();
  const PrefixMatch match = blocks_.match(request.reuse_realm, request.tokens(), reusable);
  view.num_cached = match.blocks * blocks_.tokensPerBlock();
  view.blocks_held = match.blocks;
  view.blocks_taken = match.cached;
  view.next_block = match.next_block;
  view.can_reuse_next = match.next_block != 0 && view.num_cached + blocks_.tokensPerBlock() <= reusable;
  return view;
}

// What pausing would free: only a policy that pauses asks.
void ExecutorCore::countFreed() {
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

// All that start take what they reuse before any request takes new blocks, which may evict cached ones.
void ExecutorCore::start(ActiveRequest& request) {
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  if (!reuses(request)) return request.start(slot, 0, 0, 0);
  const PrefixMatch match = blocks_.match(request.reuse_realm, request.tokens(), request.reusableTokens());
  blocks_.reuse(slot, request.reuse_realm, request.tokens(), match.blocks);
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

void ExecutorCore::written(ActiveRequest& request) {
  if (!reuses(request)) return;
  blocks_.written(request.slot, request.reuse_realm, request.tokens().first(static_cast<size_t>(request.num_cached)));
}

void ExecutorCore::countBlocks() {
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
