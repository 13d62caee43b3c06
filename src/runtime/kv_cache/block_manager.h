// Which KV block belongs to whom: a pool of block ids, a block table per slot, a reference count per block,
// and which blocks hold a prefix that another sequence may take over.
//
// Pure bookkeeping: no tensors, no clock. What stands inside a block is the backend's own. A block is in one
// of three states: used (referenced by tables), cached (by none, but its content can be found again) or
// empty. Both of the latter are free; empty ones are given first, then cached ones, in the order of EvictionOrder: a
// block belongs to the scope that wrote it, whoever takes it over. A table references a whole chain from its start and
// gives it back from its end, so within a chain the last block is the oldest, and no block is evicted before those that
// follow it: where the order of scopes would have it so, the block becomes its follower's scope's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv_cache/eviction_order.h"
#include "runtime/kv_cache/prefix_tree.h"
#include "runtime/kv_cache/shared_numbers.h"

namespace chorus {

// Where a sequence stands with what is cached.
struct PrefixMatch {
  int32_t blocks = 0;       // from its start on that hold its tokens
  int32_t cached = 0;       // of these, blocks that no table references: taking them takes free blocks
  uint64_t next_block = 0;  // number of the first block that is missing (equal for equal ones); 0: not complete
};

// What blocks refer to while they are in the tree; nullptr: nobody counts.
struct BlockNumbers {
  SharedNumbers* realms = nullptr;
  SharedNumbers* scopes = nullptr;
};

// Not thread-safe. Sized once: nothing but prepare() allocates after construction.
class BlockManager {
 public:
  // num_blocks > 0 blocks of tokens_per_block > 0 tokens for num_slots sequences of at most max_seq_len
  // tokens. hash_mask: for tests, see PrefixTree.
  BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots, int32_t max_seq_len,
               uint64_t hash_mask = ~uint64_t{0}, BlockNumbers numbers = {});

  int32_t numBlocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t freeBlocks() const { return static_cast<int32_t>(empty_.size()) + cached_.size(); }
  int32_t cachedBlocks() const { return cached_.size(); }
  int32_t usedBlocks() const { return numBlocks() - freeBlocks(); }
  int32_t tokensPerBlock() const { return tokens_per_block_; }
  // Blocks that hold `tokens` tokens.
  int32_t blocksFor(int32_t tokens) const { return (tokens + tokens_per_block_ - 1) / tokens_per_block_; }

  // A scope that occupy() may name from now on.
  void prepare(uint64_t scope) { cached_.prepare(scope); }
  // The slot's sequence is of this scope, 0 unless told; a scope that is not 0 is referred to by somebody else until
  // the slot is released.
  void occupy(int32_t slot, uint64_t scope) noexcept { scopes_[static_cast<size_t>(slot)] = scope; }
  // In seconds, ascending: scopes rest by it.
  void setTime(int64_t now) { cached_.setTime(now); }
  int32_t cachedOf(uint64_t scope) const { return cached_.sizeOf(scope); }

  // How much of a sequence stands in blocks already, at most max_tokens of it. realm: what else its keys and
  // values depend on, as a number above 0; sequences of different realms share nothing.
  PrefixMatch match(uint64_t realm, std::span<const int32_t> tokens, int32_t max_tokens) const;
  // Puts the first num_blocks blocks of what match() found at the start of the slot's empty table.
  void reuse(int32_t slot, uint64_t realm, std::span<const int32_t> tokens, int32_t num_blocks);
  // Extends the slot's table until it covers `tokens` tokens (at most max_seq_len). False, and nothing
  // changed, when the pool has too few free blocks. A table never shrinks but by release().
  bool extend(int32_t slot, int32_t tokens);
  // These tokens of the slot's sequence, from its start on, have their keys and values written: complete
  // blocks can be reused from now on. Where another slot has written the same, that block replaces this
  // slot's own.
  void written(int32_t slot, uint64_t realm, std::span<const int32_t> tokens);
  // Drops the slot's references; a block is free with its last one.
  void release(int32_t slot);

  // The slot's block ids in token order. The span's address stays valid, its length grows with extend().
  std::span<const int32_t> table(int32_t slot) const;
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }
  // Number of the slot's next block to be complete, when its first `written` tokens are written; see
  // PrefixMatch.
  uint64_t nextBlock(int32_t slot, uint64_t realm, std::span<const int32_t> tokens, int32_t written) const;
  // How many blocks would be free besides if these slots were released one after the other: one number a
  // slot.
  void freedBy(std::span<const int32_t> slots, std::span<int32_t> freed);
  // Blocks that the slot's table alone references.
  int32_t usedAlone(int32_t slot) const;

 private:
  int32_t* row(int32_t slot) { return tables_.data() + static_cast<size_t>(slot) * static_cast<size_t>(width_); }
  int32_t& count(int32_t block) { return references_[static_cast<size_t>(block)]; }
  std::span<const int32_t> blockOf(std::span<const int32_t> tokens, int32_t index) const;
  uint64_t numberOf(uint64_t realm, int32_t parent, std::span<const int32_t> tokens, int32_t index) const;

  void reference(int32_t block);
  void dereference(int32_t block);
  void own(int32_t block, uint64_t scope);
  int32_t takeFree(uint64_t scope);

  int32_t tokens_per_block_;
  int32_t width_;                    // entries of a table
  std::vector<int32_t> tables_;      // [slots, width]
  std::vector<int32_t> lengths_;     // [slots]
  std::vector<int32_t> complete_;    // [slots], blocks at the table's start that are in the tree
  std::vector<int32_t> references_;  // [blocks]
  std::vector<int32_t> empty_;       // a stack: the block freed last is the likeliest to be in a processor cache
  PrefixTree tree_;
  EvictionOrder cached_;
  BlockNumbers numbers_;
  std::vector<uint64_t> scopes_;      // [slots]
  std::vector<uint64_t> owners_;      // [blocks], of those in the tree: scopes
  std::vector<uint8_t> found_again_;  // [blocks], of those in the tree: taken over after its first users had left
  std::vector<int32_t> seen_;         // [blocks], of freedBy; zero between calls
};

}  // namespace chorus
