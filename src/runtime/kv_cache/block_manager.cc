#include "runtime/kv_cache/block_manager.h"

#include <cassert>
#include <numeric>

namespace chorus {

BlockManager::BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots,
                           int32_t max_seq_len)
    : tokens_per_block_(tokens_per_block),
      width_(blocksFor(max_seq_len)),
      tables_(static_cast<size_t>(num_slots) * static_cast<size_t>(width_)),
      lengths_(static_cast<size_t>(num_slots), 0),
      references_(static_cast<size_t>(num_blocks), 0),
      free_(static_cast<size_t>(num_blocks)) {
  assert(num_blocks > 0 && tokens_per_block > 0 && num_slots > 0 && max_seq_len > 0);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool BlockManager::extend(int32_t slot, int32_t tokens) {
  const int32_t wanted = blocksFor(tokens);
  assert(wanted <= width_);
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  if (wanted - length > freeBlocks()) return false;
  for (; length < wanted; ++length) {
    const int32_t block = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(block)] = 1;
    row(slot)[length] = block;
  }
  return true;
}

void BlockManager::share(int32_t slot, std::span<const int32_t> blocks) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  assert(length == 0 && blocks.size() <= static_cast<size_t>(width_));
  for (const int32_t block : blocks) {
    assert(references(block) > 0);
    ++references_[static_cast<size_t>(block)];
    row(slot)[length++] = block;
  }
}

void BlockManager::release(int32_t slot) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  while (length > 0) {
    const int32_t block = row(slot)[--length];
    if (--references_[static_cast<size_t>(block)] == 0) free_.push_back(block);
  }
}

std::span<const int32_t> BlockManager::table(int32_t slot) const {
  const auto begin = static_cast<size_t>(slot) * static_cast<size_t>(width_);
  return std::span(tables_).subspan(begin, static_cast<size_t>(lengths_[static_cast<size_t>(slot)]));
}

}  // namespace chorus
