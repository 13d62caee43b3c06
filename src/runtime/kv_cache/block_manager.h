// Which KV block belongs to whom: a pool of block ids, a block table per slot, a reference count per block.
// Pure bookkeeping: no tensors, no clock. What stands inside a block is the backend's own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

// Not thread-safe. Sized once: nothing allocates after construction.
class BlockManager {
 public:
  // num_blocks > 0 blocks of tokens_per_block > 0 tokens for num_slots sequences of at most max_seq_len
  // tokens.
  BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots, int32_t max_seq_len);

  int32_t numBlocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t freeBlocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t usedBlocks() const { return numBlocks() - freeBlocks(); }
  int32_t tokensPerBlock() const { return tokens_per_block_; }
  // Blocks that hold `tokens` tokens.
  int32_t blocksFor(int32_t tokens) const { return (tokens + tokens_per_block_ - 1) / tokens_per_block_; }

  // Extends the slot's table until it covers `tokens` tokens (at most max_seq_len). False, and nothing
  // changed, when the pool has too few free blocks. A table never shrinks but by release().
  bool extend(int32_t slot, int32_t tokens);
  // Puts blocks of another slot at the start of this slot's empty table, counting one more reference of each.
  void share(int32_t slot, std::span<const int32_t> blocks);
  // Drops the slot's references; a block returns to the pool with its last one.
  void release(int32_t slot);

  // The slot's block ids in token order. The span's address stays valid, its length grows with extend().
  std::span<const int32_t> table(int32_t slot) const;
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }

 private:
  int32_t* row(int32_t slot) {
    return tables_.data() + static_cast<size_t>(slot) * static_cast<size_t>(width_);
  }

  int32_t tokens_per_block_;
  int32_t width_;                    // entries of a table
  std::vector<int32_t> tables_;      // [slots, width]
  std::vector<int32_t> lengths_;     // [slots]
  std::vector<int32_t> references_;  // [blocks]
  std::vector<int32_t> free_;  // a stack: the block freed last is the likeliest to be in a processor cache
};

}  // namespace chorus
