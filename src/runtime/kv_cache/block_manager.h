// Bookkeeping of the KV cache blocks: a pool of block ids, a block table per slot, a reference count per block, and a
// prefix cache of complete blocks that other sequences may reuse. No tensors, no clock: the backend owns the memory.
//
// A block is in one of three states:
//  - used: at least one table references it;
//  - cached: no table references it, but its content is in the prefix tree and can be found again;
//  - empty.
// Cached and empty blocks are free. Empty blocks are taken first, then cached ones in the order of EvictionOrder, in
// which a block belongs to the scope of the sequence that wrote it, even after others reused it.
//
// fork() lets a second sequence continue a first one: both tables reference the same blocks. A sequence that is about
// to write into a block that is not its own first replaces it by a copy (copy-on-write).
//
// A table references a chain of blocks from its start and releases it from its end. Within a chain the last block is
// thus the oldest and is evicted first. No block is evicted before those that follow it: if the order of scopes would
// do so, the block moves to the scope of a follower instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "runtime/kv_cache/eviction_order.h"
#include "runtime/kv_cache/prefix_tree.h"
#include "runtime/kv_cache/shared_numbers.h"

namespace chorus {

// What the prefix cache holds of a sequence.
struct PrefixMatch {
  int32_t blocks = 0;       // blocks from its start whose content is in the cache
  int32_t cached = 0;       // of these, blocks that no table references: reusing them takes free blocks
  uint64_t next_block = 0;  // number of the first missing block's content, equal for equal contents; 0: not complete
};

// Counters of the numbers that blocks in the prefix tree refer to, one reference per block; nullptr: not counted.
struct BlockNumbers {
  SharedNumbers* cache_namespaces = nullptr;
  SharedNumbers* scopes = nullptr;
};

// Not thread-safe. Sized at construction: afterwards only prepare() allocates.
class BlockManager {
 public:
  // num_blocks > 0 blocks of tokens_per_block > 0 tokens, for num_slots sequences of at most max_seq_len tokens.
  // hash_mask is for tests, see PrefixTree.
  BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots, int32_t max_seq_len,
               uint64_t hash_mask = ~uint64_t{0}, BlockNumbers numbers = {});

  int32_t numBlocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t freeBlocks() const { return static_cast<int32_t>(empty_.size()) + cached_.size(); }
  int32_t cachedBlocks() const { return cached_.size(); }
  int32_t usedBlocks() const { return numBlocks() - freeBlocks(); }
  int32_t tokensPerBlock() const { return tokens_per_block_; }
  // Blocks needed for `tokens` tokens.
  int32_t blocksFor(int32_t tokens) const { return (tokens + tokens_per_block_ - 1) / tokens_per_block_; }

  // Must be called before occupy() names the scope.
  void prepare(uint64_t scope) { cached_.prepare(scope); }
  // Sets the eviction scope of the slot's sequence; 0 until set. The caller keeps its reference to a scope other than 0
  // until it has released the slot.
  void occupy(int32_t slot, uint64_t scope) noexcept { scopes_[static_cast<size_t>(slot)] = scope; }
  // In seconds, ascending. EvictionOrder finds unused scopes by it.
  void setTime(int64_t now) { cached_.setTime(now); }
  int32_t cachedOf(uint64_t scope) const { return cached_.sizeOf(scope); }

  // Finds the longest prefix of `tokens` in the cache, in whole blocks and at most max_tokens tokens. cache_namespace:
  // the cache namespace, a number above 0 for all else that keys and values depend on. Different namespaces share
  // nothing.
  PrefixMatch match(uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t max_tokens) const;
  // Puts the first num_blocks blocks that match() found at the start of the slot's empty table.
  void reuse(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t num_blocks);
  // Extends the slot's table to cover `tokens` tokens (at most max_seq_len). Returns false and changes nothing if the
  // pool has too few free blocks. Only release() shortens a table.
  bool extend(int32_t slot, int32_t tokens);
  // Commits blocks: the keys and values of the sequence's first `tokens` are written, so its complete blocks can be
  // reused from now on. If an equal block is in the cache already, it replaces this slot's own.
  void commitBlocks(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens);
  // Makes the empty table of `slot` reference the blocks that hold the first `tokens` tokens of `parent`'s sequence,
  // which are written. The sequences must have the same cache namespace, and occupy() comes before. Takes no free
  // blocks. The executor does not call it yet: its forked sequences find complete blocks in the prefix cache.
  void fork(int32_t parent, int32_t slot, int32_t tokens);
  // Whether the slot may not write at `position`, because another table references the block of that position or the
  // prefix cache may give the block to others. Always false for the next position to be written of a sequence that no
  // fork() involved. Precondition: the table has a block for `position`.
  bool isShared(int32_t slot, int32_t position) const;
  // Replaces the block of `position` by a new one, which only this table references and which takes one free block. The
  // caller must append the copy to StepInput::copies of the next step, in the order of these calls: copies are made in
  // order and before the step writes, so later calls for that step may take the old block. Preconditions: isShared(),
  // freeBlocks() > 0.
  BlockCopy copyOnWrite(int32_t slot, int32_t position);
  // Drops the slot's references. A block without references is free.
  void release(int32_t slot);

  // The slot's block ids in token order. The span's address stays valid; its length grows with extend().
  std::span<const int32_t> table(int32_t slot) const;
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }
  // Number of the block that the slot completes next, given that its first `written` tokens are written; 0 if `tokens`
  // does not complete it. See PrefixMatch::next_block.
  uint64_t nextBlock(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t written) const;
  // If these slots were released in this order, freed[i] is the number of blocks that the release of slots[i] would
  // free.
  void freedBy(std::span<const int32_t> slots, std::span<int32_t> freed);
  // Number of blocks that only the slot's table references.
  int32_t usedAlone(int32_t slot) const;

 private:
  int32_t* row(int32_t slot) { return tables_.data() + static_cast<size_t>(slot) * static_cast<size_t>(width_); }
  int32_t& count(int32_t block) { return references_[static_cast<size_t>(block)]; }
  std::span<const int32_t> blockOf(std::span<const int32_t> tokens, int32_t index) const;
  uint64_t numberOf(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens, int32_t index) const;

  void reference(int32_t block);
  void dereference(int32_t block);
  void own(int32_t block, uint64_t scope);
  int32_t takeFree(uint64_t scope);

  int32_t tokens_per_block_;
  int32_t width_;                    // entries per table
  std::vector<int32_t> tables_;      // [slots, width]
  std::vector<int32_t> lengths_;     // [slots]
  std::vector<int32_t> complete_;    // [slots], blocks at the table's start that are committed
  std::vector<int32_t> references_;  // [blocks]
  std::vector<int32_t> empty_;       // a stack: the block freed last is the most likely to be in a processor cache
  PrefixTree tree_;
  EvictionOrder cached_;
  BlockNumbers numbers_;
  std::vector<uint64_t> scopes_;      // [slots], eviction scope of the sequence
  std::vector<uint64_t> owners_;      // [blocks], eviction scope of each block in the tree
  std::vector<uint8_t> found_again_;  // [blocks], 1: reused after its first users had released it
  std::vector<int32_t> seen_;         // [blocks], scratch of freedBy(); zero between calls
};

}  // namespace chorus
