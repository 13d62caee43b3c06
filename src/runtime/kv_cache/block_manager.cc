#include "runtime/kv_cache/block_manager.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace chorus {

namespace {
constexpr int32_t kNone = PrefixTree::kNone;

// In a model with a group without a window, each node has a block of this group. Otherwise, nodes of long prefixes may
// have no blocks; if all nodes are used, new blocks do not enter the prefix cache.
int32_t mostNodes(const BlockPool& pool) {
  const bool keeps_all = std::ranges::find(pool.windows, 0) != pool.windows.end();
  return static_cast<int32_t>(std::min<int64_t>(int64_t{pool.num_blocks} * (keeps_all ? 1 : 2), INT32_MAX));
}
}  // namespace

BlockManager::BlockManager(BlockPool pool, BlockNumbers numbers)
    : demand_{pool.tokens_per_block, pool.windows},
      width_(blocksFor(pool.max_seq_len)),
      ids_(static_cast<size_t>(pool.num_slots) * pool.windows.size() * static_cast<size_t>(width_), kNone),
      table_of_(static_cast<size_t>(pool.num_slots) * pool.windows.size()),
      committed_(static_cast<size_t>(pool.num_slots)),
      references_(static_cast<size_t>(pool.num_blocks), 0),
      empty_(static_cast<size_t>(pool.num_blocks)),
      tree_(mostNodes(pool), pool.tokens_per_block, pool.hash_mask),
      node_blocks_(static_cast<size_t>(mostNodes(pool)) * pool.windows.size(), kNone),
      node_users_(static_cast<size_t>(mostNodes(pool)), 0),
      node_of_(static_cast<size_t>(pool.num_blocks), kNone),
      group_of_(static_cast<size_t>(pool.num_blocks), 0),
      cached_(pool.num_blocks),
      numbers_(numbers),
      scopes_(static_cast<size_t>(pool.num_slots), 0),
      owners_(static_cast<size_t>(pool.num_blocks), 0),
      found_again_(static_cast<size_t>(pool.num_blocks), 0),
      seen_(static_cast<size_t>(pool.num_blocks), 0),
      missing_(pool.windows.size(), kNone) {
  assert(pool.num_blocks > 0 && pool.tokens_per_block > 0 && pool.num_slots > 0 && pool.max_seq_len > 0);
  assert(!pool.windows.empty());
  std::iota(empty_.rbegin(), empty_.rend(), 0);
}

std::span<const int32_t> BlockManager::tokensOf(std::span<const int32_t> tokens, int32_t index) const {
  const auto width = static_cast<size_t>(tokensPerBlock());
  return tokens.subspan(static_cast<size_t>(index) * width, width);
}

uint64_t BlockManager::numberOf(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens,
                                int32_t index) const {
  if ((int64_t{index} + 1) * tokensPerBlock() > static_cast<int64_t>(tokens.size())) return 0;
  return tree_.hash(cache_namespace, parent, tokensOf(tokens, index)) | 1;
}

PrefixMatch BlockManager::match(uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t max_tokens) {
  assert(cache_namespace > 0 && max_tokens <= static_cast<int32_t>(tokens.size()));
  PrefixMatch found;
  int32_t last = kNone;             // node of the longest prefix that can be reused
  std::ranges::fill(missing_, -1);  // of each group, the last block that is missing
  for (int32_t i = 0, node = kNone, held = 0, cached = 0; i < max_tokens / tokensPerBlock(); ++i) {
    node = tree_.find(cache_namespace, node, tokensOf(tokens, i));
    if (node == kNone) break;
    bool reusable = true;
    for (int32_t group = 0; group < numGroups(); ++group) {
      const int32_t block = blockOfNode(node, group);
      int32_t& missing = missing_[static_cast<size_t>(group)];
      if (block == kNone) missing = i;
      reusable &= missing < demand_.blocksBefore(group, (i + 1) * tokensPerBlock());
      if (hasWindow(group)) continue;
      ++held;
      if (references(block) == 0) ++cached;
    }
    if (!reusable) continue;
    found = {.blocks = i + 1, .held = held, .cached = cached};
    last = node;
  }
  found.next_block = numberOf(cache_namespace, last, tokens, found.blocks);
  return found;
}

void BlockManager::reuse(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens, int32_t num_blocks) {
  assert(held(slot) == 0 && num_blocks <= width_);
  int32_t node = kNone;
  for (int32_t i = 0; i < num_blocks; ++i) {
    node = tree_.find(cache_namespace, node, tokensOf(tokens, i));
    assert(node != kNone);
    for (int32_t group = 0; group < numGroups(); ++group) {
      const bool kept = i >= demand_.blocksBefore(group, num_blocks * tokensPerBlock());
      row(slot, group)[i] = kept ? blockOfNode(node, group) : kNone;
      if (kept) reference(blockOfNode(node, group));
    }
  }
  for (int32_t group = 0; group < numGroups(); ++group) {
    tableOf(slot, group) = {demand_.blocksBefore(group, num_blocks * tokensPerBlock()), num_blocks};
  }
  commitTo(slot, node);
  committed_[static_cast<size_t>(slot)].blocks = num_blocks;
  cached_.use(scopes_[static_cast<size_t>(slot)], held(slot));
}

bool BlockManager::extend(int32_t slot, int32_t tokens, int32_t step_tokens) {
  assert(step_tokens <= tokens);
  const auto wanted = [&](int32_t group) { return blocksFor(hasWindow(group) ? step_tokens : tokens); };
  int32_t missing = 0;
  for (int32_t group = 0; group < numGroups(); ++group) {
    assert(wanted(group) <= width_);
    missing += std::max(0, wanted(group) - tableOf(slot, group).length);
  }
  if (missing > freeBlocks()) return false;
  for (int32_t group = 0; group < numGroups(); ++group) {
    Table& table = tableOf(slot, group);
    for (; table.length < wanted(group); ++table.length) {
      const int32_t block = takeFree(scopes_[static_cast<size_t>(slot)], group);
      cached_.use(scopes_[static_cast<size_t>(slot)], 1);
      row(slot, group)[table.length] = block;
    }
  }
  return true;
}

// Sets the node of the slot's committed prefix. A node that a slot names is not removed, even if it has no blocks and
// no children.
void BlockManager::commitTo(int32_t slot, int32_t node) {
  const int32_t before = std::exchange(committed_[static_cast<size_t>(slot)].node, node);
  if (node != kNone) ++node_users_[static_cast<size_t>(node)];
  if (before == kNone) return;
  --node_users_[static_cast<size_t>(before)];
  prune(before);
}

// kNone if all nodes are used.
int32_t BlockManager::findOrInsert(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) {
  const int32_t found = tree_.find(cache_namespace, parent, tokens);
  if (found != kNone) return found;
  const int32_t added = tree_.insert(cache_namespace, parent, tokens);
  if (added != kNone && numbers_.cache_namespaces != nullptr) numbers_.cache_namespaces->retain(cache_namespace);
  return added;
}

void BlockManager::commitBlocks(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens) {
  assert(cache_namespace > 0);
  Committed& committed = committed_[static_cast<size_t>(slot)];
  const auto now = static_cast<int32_t>(tokens.size()) / tokensPerBlock();
  for (; committed.blocks < now; ++committed.blocks) {
    const int32_t node = findOrInsert(cache_namespace, committed.node, tokensOf(tokens, committed.blocks));
    if (node == kNone) return;
    for (int32_t group = 0; group < numGroups(); ++group) {
      // If a full tree delayed the commit, slideWindows() may have released this block already.
      if (committed.blocks < tableOf(slot, group).first) continue;
      assert(committed.blocks < tableOf(slot, group).length);
      int32_t& mine = row(slot, group)[committed.blocks];
      int32_t& same = blockOfNode(node, group);
      if (same == kNone) {
        same = mine;
        node_of_[static_cast<size_t>(mine)] = node;
        found_again_[static_cast<size_t>(mine)] = 0;
        own(mine, scopes_[static_cast<size_t>(slot)]);
      } else {
        reference(same);
        dereference(std::exchange(mine, same));
      }
    }
    commitTo(slot, node);
  }
}

void BlockManager::slideWindows(int32_t slot, int32_t written) {
  for (int32_t group = 0; group < numGroups(); ++group) {
    Table& table = tableOf(slot, group);
    const int32_t first = std::min(demand_.blocksBefore(group, written), table.length);
    for (; table.first < first; ++table.first) {
      cached_.use(scopes_[static_cast<size_t>(slot)], -1);
      dereference(std::exchange(row(slot, group)[table.first], kNone));
    }
  }
}

void BlockManager::fork(int32_t parent, int32_t slot, int32_t tokens) {
  assert(held(slot) == 0 && parent != slot);
  for (int32_t group = 0; group < numGroups(); ++group) {
    const int32_t first = tableOf(parent, group).first, length = blocksFor(tokens);
    assert(length <= tableOf(parent, group).length && first <= demand_.blocksBefore(group, tokens));
    std::copy_n(row(parent, group), length, row(slot, group));
    for (int32_t i = first; i < length; ++i) reference(row(slot, group)[i]);
    tableOf(slot, group) = {first, length};
  }
  Committed common = committed_[static_cast<size_t>(parent)];
  for (; common.blocks > tokens / tokensPerBlock(); --common.blocks) common.node = tree_.parent(common.node);
  commitTo(slot, common.node);
  committed_[static_cast<size_t>(slot)].blocks = common.blocks;
  cached_.use(scopes_[static_cast<size_t>(slot)], held(slot));
}

int32_t BlockManager::numShared(int32_t slot, int32_t position) const {
  int32_t shared = 0;
  for (int32_t group = 0; group < numGroups(); ++group) {
    const int32_t block = table(slot, group)[static_cast<size_t>(position / tokensPerBlock())];
    if (references(block) > 1 || isCommitted(block)) ++shared;
  }
  return shared;
}

void BlockManager::copyOnWrite(int32_t slot, int32_t position, std::vector<BlockCopy>& copies) {
  assert(freeBlocks() >= numShared(slot, position));
  for (int32_t group = 0; group < numGroups(); ++group) {
    int32_t& entry = row(slot, group)[position / tokensPerBlock()];
    if (references(entry) <= 1 && !isCommitted(entry)) continue;
    const BlockCopy copy{entry, takeFree(scopes_[static_cast<size_t>(slot)], group)};
    entry = copy.to;
    dereference(copy.from);
    copies.push_back(copy);
  }
}

void BlockManager::release(int32_t slot) {
  cached_.use(scopes_[static_cast<size_t>(slot)], -held(slot));
  int32_t longest = 0;
  for (int32_t group = 0; group < numGroups(); ++group) longest = std::max(longest, tableOf(slot, group).length);
  for (int32_t i = longest; i-- > 0;) {
    for (int32_t group = 0; group < numGroups(); ++group) {
      const Table& table = tableOf(slot, group);
      if (i >= table.first && i < table.length) dereference(row(slot, group)[i]);
    }
  }
  for (int32_t group = 0; group < numGroups(); ++group) tableOf(slot, group) = {};
  commitTo(slot, kNone);
  committed_[static_cast<size_t>(slot)].blocks = 0;
}

std::span<const int32_t> BlockManager::table(int32_t slot, int32_t group) const {
  const size_t begin = tableIndex(slot, group) * static_cast<size_t>(width_);
  return std::span(ids_).subspan(begin, static_cast<size_t>(tableOf(slot, group).length));
}

std::span<const int32_t> BlockManager::heldIn(int32_t slot, int32_t group) const {
  return table(slot, group).subspan(static_cast<size_t>(tableOf(slot, group).first));
}

BlockTables BlockManager::tables(int32_t slot, int32_t tokens) const {
  for (int32_t group = 0; group < numGroups(); ++group) assert(blocksFor(tokens) <= tableOf(slot, group).length);
  return {table(slot).first(static_cast<size_t>(blocksFor(tokens))), width_};
}

int32_t BlockManager::held(int32_t slot) const {
  int32_t blocks = 0;
  for (int32_t group = 0; group < numGroups(); ++group) {
    blocks += tableOf(slot, group).length - tableOf(slot, group).first;
  }
  return blocks;
}

int32_t BlockManager::heldLasting(int32_t slot) const {
  int32_t blocks = 0;
  for (int32_t group = 0; group < numGroups(); ++group) {
    if (!hasWindow(group)) blocks += tableOf(slot, group).length;
  }
  return blocks;
}

uint64_t BlockManager::nextBlock(int32_t slot, uint64_t cache_namespace, std::span<const int32_t> tokens,
                                 int32_t written) const {
  const Committed& committed = committed_[static_cast<size_t>(slot)];
  if (committed.blocks != written / tokensPerBlock()) return 0;  // not committed: nobody can wait for the next block
  return numberOf(cache_namespace, committed.node, tokens, committed.blocks);
}

void BlockManager::freedBy(std::span<const int32_t> slots, std::span<int32_t> freed) {
  assert(slots.size() == freed.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    freed[i] = 0;
    for (int32_t group = 0; group < numGroups(); ++group) {
      if (hasWindow(group)) continue;
      for (const int32_t block : heldIn(slots[i], group)) {
        if (++seen_[static_cast<size_t>(block)] == references(block)) ++freed[i];
      }
    }
  }
  for (const int32_t slot : slots) {
    for (int32_t group = 0; group < numGroups(); ++group) {
      for (const int32_t block : heldIn(slot, group)) seen_[static_cast<size_t>(block)] = 0;
    }
  }
}

int32_t BlockManager::usedAlone(int32_t slot) const {
  int32_t alone = 0;
  for (int32_t group = 0; group < numGroups(); ++group) {
    if (hasWindow(group)) continue;
    for (const int32_t block : heldIn(slot, group)) alone += references(block) == 1 ? 1 : 0;
  }
  return alone;
}

void BlockManager::reference(int32_t block) {
  if (count(block)++ > 0) return;
  if (!hasWindow(group_of_[static_cast<size_t>(block)])) ++lasting_;
  cached_.remove(block);
  found_again_[static_cast<size_t>(block)] = 1;
}

void BlockManager::dereference(int32_t block) {
  assert(references(block) > 0);
  if (--count(block) > 0) return;
  const auto at = static_cast<size_t>(block);
  if (!hasWindow(group_of_[at])) --lasting_;
  if (isCommitted(block))
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

// Takes a free block for one table of this group.
int32_t BlockManager::takeFree(uint64_t scope, int32_t group) {
  assert(freeBlocks() > 0);
  if (empty_.empty()) evict(scope);
  const int32_t block = empty_.back();
  empty_.pop_back();
  count(block) = 1;
  group_of_[static_cast<size_t>(block)] = group;
  if (!hasWindow(group)) ++lasting_;
  return block;
}

// Makes at least one cached block empty. Precondition: there is one.
void BlockManager::evict(uint64_t scope) {
  int32_t block = cached_.next(scope);
  // Blocks that follow this one in the tree need it. It moves to the scope of one of them, as the youngest there, and
  // is evicted after it.
  for (int32_t child; !hasWindow(group_of_[static_cast<size_t>(block)]) &&
                      (child = tree_.someChild(node_of_[static_cast<size_t>(block)])) != kNone;
       block = cached_.next(scope)) {
    const int32_t follower = blockOfNode(child, group_of_[static_cast<size_t>(block)]);
    cached_.remove(block);
    own(block, owners_[static_cast<size_t>(follower)]);
    found_again_[static_cast<size_t>(block)] = found_again_[static_cast<size_t>(follower)];
    cached_.add(block, owners_[static_cast<size_t>(block)], found_again_[static_cast<size_t>(block)] != 0);
  }
  assert(block != kNone);
  const int32_t node = node_of_[static_cast<size_t>(block)];
  if (hasWindow(group_of_[static_cast<size_t>(block)])) {
    uncommit(block);
  } else {
    // No sequence uses the prefix, because it would reference this block.
    for (int32_t group = 0; group < numGroups(); ++group) {
      if (blockOfNode(node, group) != kNone) uncommit(blockOfNode(node, group));
    }
  }
  prune(node);
}

// Takes an unreferenced block out of the prefix cache.
void BlockManager::uncommit(int32_t block) {
  assert(references(block) == 0);
  int32_t& node = node_of_[static_cast<size_t>(block)];
  blockOfNode(node, group_of_[static_cast<size_t>(block)]) = kNone;
  node = kNone;
  cached_.remove(block);
  own(block, 0);
  empty_.push_back(block);
}

// Removes a node that nothing needs any more, and then its parents likewise.
void BlockManager::prune(int32_t node) {
  while (node != kNone && tree_.someChild(node) == kNone && node_users_[static_cast<size_t>(node)] == 0) {
    for (int32_t group = 0; group < numGroups(); ++group) {
      if (blockOfNode(node, group) != kNone) return;
    }
    const int32_t parent = tree_.parent(node);
    const uint64_t cache_namespace = tree_.namespaceOf(node);
    tree_.erase(node);
    if (numbers_.cache_namespaces != nullptr) numbers_.cache_namespaces->release(cache_namespace);
    node = parent;
  }
}

}  // namespace chorus
