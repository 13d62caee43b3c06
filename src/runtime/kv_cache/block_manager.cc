#include "runtime/kv_cache/block_manager.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace chorus {

namespace {
constexpr int32_t kNone = PrefixTree::kNone;
}  // namespace

BlockManager::BlockManager(int32_t num_blocks, int32_t tokens_per_block, int32_t num_slots, int32_t max_seq_len,
                           uint64_t hash_mask, BlockNumbers numbers)
    : tokens_per_block_(tokens_per_block),
      width_(blocksFor(max_seq_len)),
      tables_(static_cast<size_t>(num_slots) * static_cast<size_t>(width_)),
      lengths_(static_cast<size_t>(num_slots), 0),
      complete_(static_cast<size_t>(num_slots), 0),
      references_(static_cast<size_t>(num_blocks), 0),
      empty_(static_cast<size_t>(num_blocks)),
      tree_(num_blocks, tokens_per_block, hash_mask),
      cached_(num_blocks),
      numbers_(numbers),
      scopes_(static_cast<size_t>(num_slots), 0),
      owners_(static_cast<size_t>(num_blocks), 0),
      found_again_(static_cast<size_t>(num_blocks), 0),
      seen_(static_cast<size_t>(num_blocks), 0) {
  assert(num_blocks > 0 && tokens_per_block > 0 && num_slots > 0 && max_seq_len > 0);
  std::iota(empty_.rbegin(), empty_.rend(), 0);
}

std::span<const int32_t> BlockManager::blockOf(std::span<const int32_t> tokens, int32_t index) const {
  const auto width = static_cast<size_t>(tokens_per_block_);
  return tokens.subspan(static_cast<size_t>(index) * width, width);
}

uint64_t BlockManager::numberOf(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens,
                                int32_t index) const {
  if ((int64_t{index} + 1) * tokens_per_block_ > static_cast<int64_t>(tokens.size())) return 0;
  return tree_.hash(cache_namespace, parent, blockOf(tokens, index)) | 1;
}

PrefixMatch BlockManager::match(uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t max_tokens) const {
  assert(cache_namespace > 0 && max_tokens <= static_cast<int32_t>(tokens.size()));
  PrefixMatch found;
  int32_t last = kNone;
  for (; found.blocks < max_tokens / tokens_per_block_; ++found.blocks) {
    const int32_t block = tree_.find(cache_namespace, last, blockOf(tokens, found.blocks));
    if (block == kNone) break;
    last = block;
    if (references(block) == 0) ++found.cached;
  }
  found.next_block = numberOf(cache_namespace, last, tokens, found.blocks);
  return found;
}

void BlockManager::reuse(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t num_blocks) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  assert(length == 0 && num_blocks <= width_);
  for (int32_t last = kNone; length < num_blocks; ++length) {
    last = tree_.find(cache_namespace, last, blockOf(tokens, length));
    assert(last != kNone);
    reference(last);
    row(slot)[length] = last;
  }
  complete_[static_cast<size_t>(slot)] = num_blocks;
  cached_.use(scopes_[static_cast<size_t>(slot)], num_blocks);
}

bool BlockManager::extend(int32_t slot, int32_t tokens) {
  const int32_t wanted = blocksFor(tokens);
  assert(wanted <= width_);
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  if (wanted - length > freeBlocks()) return false;
  for (; length < wanted; ++length) {
    const int32_t block = takeFree(scopes_[static_cast<size_t>(slot)]);
    count(block) = 1;
    cached_.use(scopes_[static_cast<size_t>(slot)], 1);
    row(slot)[length] = block;
  }
  return true;
}

void BlockManager::commitBlocks(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens) {
  assert(cache_namespace > 0);
  int32_t& complete = complete_[static_cast<size_t>(slot)];
  const auto now = static_cast<int32_t>(tokens.size()) / tokens_per_block_;
  assert(now <= lengths_[static_cast<size_t>(slot)]);
  for (; complete < now; ++complete) {
    int32_t& mine = row(slot)[complete];
    const int32_t parent = complete > 0 ? row(slot)[complete - 1] : kNone;
    const auto content = blockOf(tokens, complete);
    const int32_t same = tree_.find(cache_namespace, parent, content);
    if (same == kNone) {
      tree_.insert(mine, cache_namespace, parent, content);
      found_again_[static_cast<size_t>(mine)] = 0;
      own(mine, scopes_[static_cast<size_t>(slot)]);
      if (numbers_.cache_namespaces != nullptr) numbers_.cache_namespaces->retain(cache_namespace);
    } else {
      reference(same);
      dereference(mine);
      mine = same;
    }
  }
}

void BlockManager::fork(int32_t parent, int32_t slot, int32_t tokens) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  const int32_t shared = blocksFor(tokens);
  assert(length == 0 && parent != slot && shared <= lengths_[static_cast<size_t>(parent)]);
  for (; length < shared; ++length) {
    reference(row(parent)[length]);
    row(slot)[length] = row(parent)[length];
  }
  complete_[static_cast<size_t>(slot)] = std::min(complete_[static_cast<size_t>(parent)], tokens / tokens_per_block_);
  cached_.use(scopes_[static_cast<size_t>(slot)], shared);
}

bool BlockManager::isShared(int32_t slot, int32_t position) const {
  const int32_t block = table(slot)[static_cast<size_t>(position / tokens_per_block_)];
  return references(block) > 1 || tree_.contains(block);
}

BlockCopy BlockManager::copyOnWrite(int32_t slot, int32_t position) {
  assert(isShared(slot, position) && freeBlocks() > 0);
  int32_t& entry = row(slot)[position / tokens_per_block_];
  const BlockCopy copy{entry, takeFree(scopes_[static_cast<size_t>(slot)])};
  count(copy.to) = 1;
  entry = copy.to;
  dereference(copy.from);
  return copy;
}

void BlockManager::release(int32_t slot) {
  int32_t& length = lengths_[static_cast<size_t>(slot)];
  cached_.use(scopes_[static_cast<size_t>(slot)], -length);
  while (length > 0) dereference(row(slot)[--length]);
  complete_[static_cast<size_t>(slot)] = 0;
}

std::span<const int32_t> BlockManager::table(int32_t slot) const {
  const auto begin = static_cast<size_t>(slot) * static_cast<size_t>(width_);
  return std::span(tables_).subspan(begin, static_cast<size_t>(lengths_[static_cast<size_t>(slot)]));
}

uint64_t BlockManager::nextBlock(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens,
                                 int32_t written) const {
  const int32_t index = written / tokens_per_block_;
  const int32_t parent = index > 0 ? table(slot)[static_cast<size_t>(index) - 1] : kNone;
  return numberOf(cache_namespace, parent, tokens, index);
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

int32_t BlockManager::usedAlone(int32_t slot) const {
  int32_t alone = 0;
  for (const int32_t block : table(slot)) alone += references(block) == 1 ? 1 : 0;
  return alone;
}

void BlockManager::reference(int32_t block) {
  if (count(block)++ > 0) return;
  cached_.remove(block);
  found_again_[static_cast<size_t>(block)] = 1;
}

void BlockManager::dereference(int32_t block) {
  assert(references(block) > 0);
  if (--count(block) > 0) return;
  const auto at = static_cast<size_t>(block);
  if (tree_.contains(block))
    cached_.add(block, owners_[at], found_again_[at] != 0);
  else
    empty_.push_back(block);
}

void BlockManager::own(int32_t block, uint64_t scope) {
  const uint64_t before = std::exchange(owners_[static_cast<size_t>(block)], scope);
  if (numbers_.scopes == nullptr) return;
  if (scope != 0) numbers_.scopes->retain(scope);
  if (before != 0) numbers_.scopes->release(before);
}

int32_t BlockManager::takeFree(uint64_t scope) {
  if (!empty_.empty()) {
    const int32_t block = empty_.back();
    empty_.pop_back();
    return block;
  }
  int32_t block = cached_.next(scope);
  // Blocks that follow this one in the tree need it. It moves to the scope of one of them, as the youngest there, and
  // is evicted after it.
  for (int32_t child; (child = tree_.someChild(block)) != kNone; block = cached_.next(scope)) {
    cached_.remove(block);
    own(block, owners_[static_cast<size_t>(child)]);
    found_again_[static_cast<size_t>(block)] = found_again_[static_cast<size_t>(child)];
    cached_.add(block, owners_[static_cast<size_t>(block)], found_again_[static_cast<size_t>(block)] != 0);
  }
  assert(block != kNone);
  cached_.remove(block);
  own(block, 0);
  const uint64_t cache_namespace = tree_.namespaceOf(block);
  tree_.erase(block);
  if (numbers_.cache_namespaces != nullptr) numbers_.cache_namespaces->release(cache_namespace);
  return block;
}

}  // namespace chorus
