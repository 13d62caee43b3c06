#include "runtime/kv_cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/random_bits.h"

namespace chorus {
namespace {

// One step of splitmix64: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

PrefixTree::PrefixTree(int32_t num_blocks, int32_t tokens_per_block, uint64_t hash_mask)
    : tokens_per_block_(tokens_per_block),
      hash_mask_(hash_mask),
      key_(randomBits()),
      nodes_(static_cast<size_t>(num_blocks)),
      tokens_(static_cast<size_t>(num_blocks) * static_cast<size_t>(tokens_per_block)),
      buckets_(std::bit_ceil(2 * static_cast<size_t>(num_blocks)), kNone) {}

uint64_t PrefixTree::hash(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const {
  uint64_t hash = mix(cache_namespace ^ key_) ^ static_cast<uint64_t>(static_cast<int64_t>(parent));
  for (const int32_t token : tokens) hash = mix(hash ^ static_cast<uint64_t>(static_cast<uint32_t>(token)));
  return hash & hash_mask_;
}

int32_t PrefixTree::find(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const {
  assert(tokens.size() == static_cast<size_t>(tokens_per_block_));
  const uint64_t wanted = hash(cache_namespace, parent, tokens);
  int32_t block = buckets_[wanted & (buckets_.size() - 1)];
  for (; block != kNone; block = node(block).next) {
    const Node& found = node(block);
    if (found.hash == wanted && found.cache_namespace == cache_namespace && found.parent == parent &&
        std::ranges::equal(tokensOf(block), tokens)) {
      break;
    }
  }
  return block;
}

void PrefixTree::insert(int32_t block, uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) {
  assert(!contains(block) && find(cache_namespace, parent, tokens) == kNone);
  assert(parent == kNone || (contains(parent) && node(parent).cache_namespace == cache_namespace));
  Node& added = node(block);
  added.hash = hash(cache_namespace, parent, tokens);
  added.cache_namespace = cache_namespace;
  added.parent = parent;
  added.in_tree = true;
  added.next = bucket(added.hash);
  bucket(added.hash) = block;
  if (parent != kNone) {
    ++node(parent).children;
    added.next_sibling = node(parent).first_child;
    if (added.next_sibling != kNone) node(added.next_sibling).previous_sibling = block;
    node(parent).first_child = block;
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(block) * tokens_per_block_);
}

void PrefixTree::erase(int32_t block) {
  Node& gone = node(block);
  assert(gone.in_tree && gone.children == 0);
  int32_t* link = &bucket(gone.hash);
  while (*link != block) link = &node(*link).next;
  *link = gone.next;
  if (gone.parent != kNone) {
    --node(gone.parent).children;
    (gone.previous_sibling != kNone ? node(gone.previous_sibling).next_sibling : node(gone.parent).first_child) =
        gone.next_sibling;
    if (gone.next_sibling != kNone) node(gone.next_sibling).previous_sibling = gone.previous_sibling;
  }
  gone = Node();
}

}  // namespace chorus
