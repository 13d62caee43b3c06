// Slots and KV blocks of the executor's sequences: cache namespaces, reuse, allocation and release, and their
// statistics.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chorus/statistics.h"
#include "runtime/core_options.h"
#include "runtime/kv_cache/block_manager.h"
#include "runtime/kv_cache/shared_numbers.h"
#include "runtime/request.h"
#include "runtime/scheduler.h"

namespace chorus {

// Used by the step thread alone.
class SequenceBlocks {
 public:
  explicit SequenceBlocks(const CoreOptions& options);

  size_t freeSlots() const { return free_slots_.size(); }
  // StepRoom::free_blocks.
  int32_t freeBlocks() const { return blocks_.numBlocks() - blocks_.lastingBlocks(); }

  // Fills the view's fields about cached tokens and blocks. May assign the cache namespace. If it throws
  // std::bad_alloc, nothing has changed.
  void view(Sequence& sequence, RequestView& view);
  // Fills blocks_alone of the running sequences' views if others wait for blocks of another client, and blocks_freed
  // under kMAX_UTILIZATION. views: those of `running` first, in the same order.
  void countFreed(std::span<Sequence* const> running, bool for_clients, std::span<RequestView> views);

  // Must be called before start(). If it throws, nothing has changed.
  void prepare(const Sequence& sequence) { blocks_.prepare(sequence.cache_scope); }
  // Assigns a slot and the cached blocks that the sequence reuses. Call it for all starting sequences before the first
  // extend(), because new blocks may evict cached blocks that a starting sequence reuses. Precondition: freeSlots() >
  // 0.
  void start(Sequence& sequence, uint64_t step) noexcept;
  // Takes blocks for all known tokens of the sequence; in KV groups with windows, for those up to the end of a step
  // that computes step_tokens of them. The scheduler plans so that there are enough.
  void extend(Sequence& sequence, int32_t step_tokens);
  // The sequence's blocks that hold its first `tokens` tokens. Valid until it is released.
  BlockTables tables(const Sequence& sequence, int32_t tokens) const;
  // Enters the complete blocks of the computed tokens into the prefix cache, and releases the blocks that no later
  // token reads.
  void commit(Sequence& sequence);
  // Releases slot and blocks of a running sequence, which keeps its cache namespace.
  void release(const Sequence& sequence) noexcept;
  // Drops the sequence's cache namespace and scope, which it no longer needs.
  void leaveCacheNamespace(Sequence& sequence) noexcept;

  // The statistics as of now. Also sets the time that eviction goes by.
  const executor::KvCacheStats& count();

 private:
  bool reuses(const Sequence& sequence) const { return sequence.cache_namespace != 0; }
  void findCacheNamespace(Sequence& sequence);
  void leave(Request& request, uint64_t cache_namespace) noexcept;

  const CoreOptions& options_;
  // Cache namespaces: what keys and values depend on besides the tokens, which is adapter content and salt. With a
  // narrower reuse_scope also the client.
  SharedNumbers cache_namespaces_;
  SharedNumbers scopes_;  // eviction scopes: cached blocks of one scope are evicted together
  BlockManager blocks_;
  std::vector<int32_t> free_slots_;
  executor::KvCacheStats stats_;
  std::vector<int32_t> slots_from_back_, freed_from_back_;  // slots of running in reverse, blocks that each frees
};

}  // namespace chorus
