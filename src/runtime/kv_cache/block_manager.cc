#include "runtime/kv_cache/block_manager.h"

#include <cassert>
#include <numeric>

namespace chorus {

namespace {
constexpr int32_t kNone = PrefixTree::kNone;
}  // namespace

BlockManager::BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots, int32_t max_seq_len,
                           uint64_t hash_mask)
    : tokens_per_block_(tokens_per_block),
      width_(blocksFor(max_seq_len)),
      tables_(static_cast<size_t>(num_slots) * static_cast<size_t>(width_)),
      lengths_(static_cast<size_t>(num_slots), 0),
      complete_(static_cast<size_t>(num_slots), 0),
      references_(static_cast<size_t>(num_blocks), 0),
      empty_(static_cast<size_t>(num_blocks)),
      tree_(num_blocks, tokens_per_block, hash_mask),
      links_(static_cast<size_t>(num_blocks)),
      seen_(static_cast<size_t>(num_blocks), 0) {
  assert(num_blocks > 0 && tokens_per_block > 0 && num_slots > 0 && max_seq_len > 0);
  std::iota(empty_.rbegin(), empty_.rend(), 0);
}

std::span<const int32_t> BlockManager::blockOf(std::span<const int32_t> tokens, int32_t index) const {
  const auto width = static_cast<size_t>(tokens_per_block_);
  return tokens.subspan(static_cast<size_t>(index) * width, width);
}

uint64_t BlockManager::numberOf(uint64_t realm, int32_t parent, std::span<const int32_t> tokens, int32_t index) const {
  if ((int64_t{index} + 1) * tokens_per_block_ > static_cast<int64_t>(tokens.size())) return 0;
  return tree_.hash(realm, parent, blockOf(tokens, index)) | 1;
}

PrefixMatch BlockManager::match(uint64_t realm, std::span<const int32_t> tokens, int32_t max_tokens) const {
  assert(realm > 0 && max_tokens <= static_cast<int32_t>(tokens.size()));
  PrefixMatch found;
  int32_t last = kNone;
  for (; found.blocks < max_tokens / tokens_per_block_; ++found.blocks) {
    const int32_t block = tree_.find(realm, last, blockOf(tokens, found.blocks));
    if (block == kNone) break;
    last = block;
    if (references(block) == 0) ++found.cached;
  }
  found.next_block = numberOf(realm, last, tokens, found.blocks);
  return found;
}

void BlockManager::reuse(int32_t slot, uint64_t realm, std::span<const int32_t> tokens, int32_t num_blocks) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  assert(length == 0 && num_blocks <= width_);
  for (int32_t last = kNone; length < num_blocks; ++length) {
    last = tree_.find(realm, last, blockOf(tokens, length));
    assert(last != kNone);
    reference(last);
    row(slot)[length] = last;
  }
  complete_[static_cast<size_t>(slot)] = num_blocks;
}

bool BlockManager::extend(int32_t slot, int32_t tokens) {
  const int32_t wanted = blocksFor(tokens);
  assert(wanted <= width_);
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  if (wanted - length > freeBlocks()) return false;
  for (; length < wanted; ++length) {
    const int32_t block = takeFree();
    count(block) = 1;
    row(slot)[length] = block;
  }
  return true;
}

void BlockManager::written(int32_t slot, uint64_t realm, std::span<const int32_t> tokens) {
  assert(realm > 0);
  int32_t& complete = complete_[static_cast<size_t>(slot)];
  const auto now = static_cast<int32_t>(tokens.size()) / tokens_per_block_;
  assert(now <= lengths_[static_cast<size_t>(slot)]);
  for (; complete < now; ++complete) {
    int32_t& mine = row(slot)[complete];
    const int32_t parent = complete > 0 ? row(slot)[complete - 1] : kNone;
    const auto content = blockOf(tokens, complete);
    const int32_t same = tree_.find(realm, parent, content);
    if (same == kNone) {
      tree_.insert(mine, realm, parent, content);
    } else {
      reference(same);
      dereference(mine);
      mine = same;
    }
  }
}

void BlockManager::release(int32_t slot) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  while (length > 0) dereference(row(slot)[--length]);
  complete_[static_cast<size_t>(slot)] = 0;
}

std::span<const int32_t> BlockManager::table(int32_t slot) const {
  const auto begin = static_cast<size_t>(slot) * static_cast<size_t>(width_);
  return std::span(tables_).subspan(begin, static_cast<size_t>(lengths_[static_cast<size_t>(slot)]));
}

uint64_t BlockManager::nextBlock(int32_t slot, uint64_t realm, std::span<const int32_t> tokens, int32_t written) const {
  const int32_t index = written / tokens_per_block_;
  const int32_t parent = index > 0 ? table(slot)[static_cast<size_t>(index) - 1] : kNone;
  return numberOf(realm, parent, tokens, index);
}

void BlockManager::freedBy(std::span<const int32_t> slots, std::span<int32_t> freed) {
  assert(slots.size() == freed.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    freed[i] = 0;
    for (const int32_t block : table(slots[i])) {
      if (++seen_[static_cast<size_t>(block)] == references(block)) ++freed[i];
    }
  }
  for (const int32_t slot : slots) {
    for (const int32_t block : table(slot)) seen_[static_cast<size_t>(block)] = 0;
  }
}

void BlockManager::reference(int32_t block) {
  if (count(block)++ == 0) uncache(block);
}

void BlockManager::dereference(int32_t block) {
  assert(references(block) > 0);
  if (--count(block) > 0) return;
  if (tree_.contains(block))
    cache(block);
  else
    empty_.push_back(block);
}

void BlockManager::cache(int32_t block) {
  link(block) = {newest_, kNone};
  (newest_ == kNone ? oldest_ : link(newest_).next) = block;
  newest_ = block;
  ++num_cached_;
}

void BlockManager::uncache(int32_t block) {
  const Link at = link(block);
  (at.previous == kNone ? oldest_ : link(at.previous).next) = at.next;
  (at.next == kNone ? newest_ : link(at.next).previous) = at.previous;
  --num_cached_;
}

int32_t BlockManager::takeFree() {
  if (!empty_.empty()) {
    const int32_t block = empty_.back();
    empty_.pop_back();
    return block;
  }
  const int32_t block = oldest_;
  assert(block != kNone);
  uncache(block);
  tree_.erase(block);
  return block;
}

}  // namespace chorus
