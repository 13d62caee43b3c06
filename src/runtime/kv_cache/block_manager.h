// Bookkeeping of the KV cache: a pool of block ids, a block table for each slot and KV group, a reference count per
// block, and a prefix cache of complete blocks that other sequences may reuse. No tensors, no clock: the backend owns
// the memory.
//
// All KV groups (models/kv_groups.h) take blocks from the same pool. A group with a window keeps only the blocks that
// the window of the next token touches: slideWindows() releases the others.
//
// A block is in one of three states:
//  - used: at least one table references it;
//  - cached: no table references it, but its content is in the prefix cache and can be found again;
//  - empty.
// Cached and empty blocks are free. Empty blocks are taken first, then cached ones in the order of EvictionOrder, in
// which a block belongs to the scope of the sequence that wrote it, even after others reused it.
//
// The prefix cache is a tree of token prefixes. A node has the block of each group for the prefix's last tokens; blocks
// of groups with windows may be missing. A prefix can be reused if all blocks are there that the token after it reads.
//
// fork() lets a second sequence continue a first one: both tables reference the same blocks. A sequence that is about
// to write into a block that is not its own first replaces it by a copy (copy-on-write).
//
// A table references a chain of blocks from its start and releases it from its end. Within a chain the last block is
// thus the oldest and is evicted first. In groups without a window no block is evicted before those that follow it: if
// the order of scopes would do so, the block moves to the scope of a follower instead. If such a block is evicted, the
// blocks of other groups for the same prefix become empty too, because nothing can reuse them. In groups with a window
// each block is evicted on its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "runtime/kv_cache/eviction_order.h"
#include "runtime/kv_cache/kv_demand.h"
#include "runtime/kv_cache/prefix_tree.h"
#include "runtime/kv_cache/shared_numbers.h"

namespace chorus {

// The part of a sequence that is in the prefix cache.
struct PrefixMatch {
  int32_t blocks = 0;       // length of the prefix that can be reused, in blocks of tokens
  int32_t held = 0;         // its KV blocks in groups without a window
  int32_t cached = 0;       // of these, blocks that no table references: reusing them takes free blocks
  uint64_t next_block = 0;  // number of the first missing block's content, equal for equal contents; 0: not complete
};

// Counters of the numbers that blocks in the prefix tree refer to, one reference per block; nullptr: not counted.
struct BlockNumbers {
  SharedNumbers* cache_namespaces = nullptr;
  SharedNumbers* scopes = nullptr;
};

struct BlockPool {
  int32_t num_blocks = 0;
  int32_t tokens_per_block = 0;
  int32_t num_slots = 0;               // sequences
  int32_t max_seq_len = 0;             // tokens of a sequence
  std::vector<int32_t> windows = {0};  // of each KV group, as in KvDemand
  uint64_t hash_mask = ~uint64_t{0};   // for tests, see PrefixTree
};

// Not thread-safe. Sized at construction: afterwards only prepare() allocates.
class BlockManager {
 public:
  explicit BlockManager(BlockPool pool, BlockNumbers numbers = {});

  int32_t numBlocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t freeBlocks() const { return static_cast<int32_t>(empty_.size()) + cached_.size(); }
  int32_t cachedBlocks() const { return cached_.size(); }
  int32_t usedBlocks() const { return numBlocks() - freeBlocks(); }
  // Used blocks of groups without a window.
  int32_t lastingBlocks() const { return lasting_; }
  int32_t tokensPerBlock() const { return demand_.tokens_per_block; }
  int32_t numGroups() const { return demand_.numGroups(); }
  // Blocks needed in one group for `tokens` tokens.
  int32_t blocksFor(int32_t tokens) const { return demand_.blocksFor(tokens); }

  // Must be called before occupy() names the scope.
  void prepare(uint64_t scope) { cached_.prepare(scope); }
  // Sets the eviction scope of the slot's sequence; 0 until set. The caller keeps its reference to a scope other than 0
  // until it has released the slot.
  void occupy(int32_t slot, uint64_t scope) noexcept { scopes_[static_cast<size_t>(slot)] = scope; }
  // Sets the time in seconds, which must never decrease. EvictionOrder finds unused scopes by it.
  void setTime(int64_t now) { cached_.setTime(now); }
  int32_t cachedOf(uint64_t scope) const { return cached_.sizeOf(scope); }

  // Finds the longest prefix of `tokens` that can be reused, in whole blocks and at most max_tokens tokens.
  // cache_namespace: the cache namespace, a number above 0 for all else that keys and values depend on. Different
  // namespaces share nothing.
  PrefixMatch match(uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t max_tokens);
  // Puts the blocks of a prefix into the slot's empty tables. num_blocks: PrefixMatch::blocks of match().
  void reuse(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t num_blocks);
  // Extends the slot's tables (at most to max_seq_len): to `tokens` tokens in groups without a window, and to
  // step_tokens <= tokens in groups with one, which a long context passes through step by step. Returns false and
  // changes nothing if the pool has too few free blocks. Only slideWindows() and release() give blocks back.
  bool extend(int32_t slot, int32_t tokens, int32_t step_tokens);
  bool extend(int32_t slot, int32_t tokens) { return extend(slot, tokens, tokens); }
  // Commits blocks: the keys and values of the sequence's first `tokens` are written, so its complete blocks can be
  // reused from now on. If an equal block is in the cache already, it replaces this slot's own.
  void commitBlocks(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens);
  // The first `written` tokens are written and committed: releases the blocks that no later token reads.
  void slideWindows(int32_t slot, int32_t written);
  // Makes the empty tables of `slot` reference the blocks that hold the first `tokens` tokens of `parent`'s sequence,
  // which are written. The sequences must have the same cache namespace, and occupy() comes before. Takes no free
  // blocks. In a model with windows, the parent must not have released blocks that the token at position `tokens`
  // reads. The executor does not call it yet: its forked sequences find complete blocks in the prefix cache.
  void fork(int32_t parent, int32_t slot, int32_t tokens);
  // The number of groups in which the slot may not write at `position`, because another table references the block of
  // that position or the prefix cache may give the block to others. Always 0 for the next position to be written of a
  // sequence that no fork() involved. Precondition: the tables have blocks for `position`.
  int32_t numShared(int32_t slot, int32_t position) const;
  // Replaces these blocks by new ones, which only this slot's tables reference; each takes one free block. Appends the
  // copies, which the caller must append to StepInput::copies of the next step in the order of these calls: copies are
  // made in order and before the step writes, so later calls for that step may take the old blocks. Precondition:
  // freeBlocks() >= numShared().
  void copyOnWrite(int32_t slot, int32_t position, std::vector<BlockCopy>& copies);
  // Drops the slot's references. A block without references is free.
  void release(int32_t slot);

  // The slot's block ids in token order; -1 for blocks that slideWindows() released or reuse() did not need. The span's
  // address stays valid; its length grows with extend().
  std::span<const int32_t> table(int32_t slot, int32_t group = 0) const;
  // The tables of all groups for the first `tokens` tokens. Precondition: extend() covered them.
  BlockTables tables(int32_t slot, int32_t tokens) const;
  // Number of blocks that the slot's tables reference: in all groups together, and in those without a window.
  int32_t held(int32_t slot) const;
  int32_t heldLasting(int32_t slot) const;
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }
  // Number of the block that the slot completes next, given that its first `written` tokens are committed; 0 if
  // `tokens` does not complete it. See PrefixMatch::next_block.
  uint64_t nextBlock(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t written) const;
  // If these slots were released in this order, freed[i] is the number of blocks of groups without a window that the
  // release of slots[i] would free.
  void freedBy(std::span<const int32_t> slots, std::span<int32_t> freed);
  // Number of blocks of groups without a window that only the slot's tables reference.
  int32_t usedAlone(int32_t slot) const;

 private:
  // The block table of one group in a slot: entries [first, length) of a row of ids reference blocks.
  struct Table {
    int32_t first = 0;
    int32_t length = 0;
  };
  // The prefix of a slot's sequence that is in the prefix cache.
  struct Committed {
    int32_t blocks = 0;                // length in blocks of tokens
    int32_t node = PrefixTree::kNone;  // of the whole prefix; counted in node_users_
  };
  size_t tableIndex(int32_t slot, int32_t group) const {
    return static_cast<size_t>(slot) * demand_.windows.size() + static_cast<size_t>(group);
  }
  Table& tableOf(int32_t slot, int32_t group) { return table_of_[tableIndex(slot, group)]; }
  const Table& tableOf(int32_t slot, int32_t group) const { return table_of_[tableIndex(slot, group)]; }
  int32_t* row(int32_t slot, int32_t group) {
    return ids_.data() + tableIndex(slot, group) * static_cast<size_t>(width_);
  }
  // The ids of all blocks that the table references.
  std::span<const int32_t> heldIn(int32_t slot, int32_t group) const;
  int32_t& count(int32_t block) { return references_[static_cast<size_t>(block)]; }
  int32_t& blockOfNode(int32_t node, int32_t group) {
    return node_blocks_[static_cast<size_t>(node) * demand_.windows.size() + static_cast<size_t>(group)];
  }
  bool hasWindow(int32_t group) const { return demand_.windows[static_cast<size_t>(group)] > 0; }
  bool isCommitted(int32_t block) const { return node_of_[static_cast<size_t>(block)] != PrefixTree::kNone; }
  std::span<const int32_t> tokensOf(std::span<const int32_t> tokens, int32_t index) const;
  uint64_t numberOf(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens, int32_t index) const;

  void reference(int32_t block);
  void dereference(int32_t block);
  void own(int32_t block, uint64_t scope);
  int32_t takeFree(uint64_t scope, int32_t group);
  int32_t findOrInsert(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens);
  void commitTo(int32_t slot, int32_t node);
  void evict(uint64_t scope);
  void uncommit(int32_t block);
  void prune(int32_t node);

  KvDemand demand_;
  int32_t width_;                     // entries per table
  std::vector<int32_t> ids_;          // [slots, groups, width]
  std::vector<Table> table_of_;       // [slots, groups]
  std::vector<Committed> committed_;  // [slots]
  std::vector<int32_t> references_;   // [blocks]
  std::vector<int32_t> empty_;        // a stack: the block freed last is the most likely to be in a processor cache
  PrefixTree tree_;
  std::vector<int32_t> node_blocks_;  // [nodes, groups], kNone: missing
  std::vector<int32_t> node_users_;   // [nodes], slots whose Committed names the node
  std::vector<int32_t> node_of_;      // [blocks], kNone: not in the prefix cache
  std::vector<int32_t> group_of_;     // [blocks], the group that uses the block or used it last
  int32_t lasting_ = 0;               // see lastingBlocks()
  EvictionOrder cached_;
  BlockNumbers numbers_;
  std::vector<uint64_t> scopes_;      // [slots], eviction scope of the sequence
  std::vector<uint64_t> owners_;      // [blocks], eviction scope of each block in the prefix cache
  std::vector<uint8_t> found_again_;  // [blocks], 1: reused after its first users had released it
  std::vector<int32_t> seen_;         // [blocks], scratch of freedBy(); zero between calls
  std::vector<int32_t> missing_;      // [groups], scratch of match()
};

}  // namespace chorus
