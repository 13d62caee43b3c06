#include "runtime/kv_cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>

#include "base/random_bits.h"

namespace chorus {
namespace {

// The mixing function of splitmix64: every input bit affects every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

PrefixTree::PrefixTree(int32_t num_nodes, int32_t tokens_per_block, uint64_t hash_mask)
    : tokens_per_block_(tokens_per_block),
      hash_mask_(hash_mask),
      key_(randomBits()),
      nodes_(static_cast<size_t>(num_nodes)),
      unused_(static_cast<size_t>(num_nodes)),
      tokens_(static_cast<size_t>(num_nodes) * static_cast<size_t>(tokens_per_block)),
      buckets_(std::bit_ceil(2 * static_cast<size_t>(num_nodes)), kNone) {
  std::iota(unused_.rbegin(), unused_.rend(), 0);
}

uint64_t PrefixTree::hash(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const {
  uint64_t hash = mix(cache_namespace ^ key_) ^ static_cast<uint64_t>(static_cast<int64_t>(parent));
  for (const int32_t token : tokens) hash = mix(hash ^ static_cast<uint64_t>(static_cast<uint32_t>(token)));
  return hash & hash_mask_;
}

int32_t PrefixTree::find(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const {
  assert(tokens.size() == static_cast<size_t>(tokens_per_block_));
  const uint64_t wanted = hash(cache_namespace, parent, tokens);
  int32_t node = buckets_[wanted & (buckets_.size() - 1)];
  for (; node != kNone; node = at(node).next) {
    const Node& found = at(node);
    if (found.hash == wanted && found.cache_namespace == cache_namespace && found.parent == parent &&
        std::ranges::equal(tokensOf(node), tokens)) {
      break;
    }
  }
  return node;
}

int32_t PrefixTree::insert(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) {
  assert(find(cache_namespace, parent, tokens) == kNone);
  assert(parent == kNone || (at(parent).in_tree && at(parent).cache_namespace == cache_namespace));
  if (unused_.empty()) return kNone;
  const int32_t node = unused_.back();
  unused_.pop_back();
  Node& added = at(node);
  added.hash = hash(cache_namespace, parent, tokens);
  added.cache_namespace = cache_namespace;
  added.parent = parent;
  added.in_tree = true;
  added.next = bucket(added.hash);
  bucket(added.hash) = node;
  if (parent != kNone) {
    added.next_sibling = at(parent).first_child;
    if (added.next_sibling != kNone) at(added.next_sibling).previous_sibling = node;
    at(parent).first_child = node;
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(node) * tokens_per_block_);
  return node;
}

void PrefixTree::erase(int32_t node) {
  Node& gone = at(node);
  assert(gone.in_tree && gone.first_child == kNone);
  int32_t* link = &bucket(gone.hash);
  while (*link != node) link = &at(*link).next;
  *link = gone.next;
  if (gone.parent != kNone) {
    (gone.previous_sibling != kNone ? at(gone.previous_sibling).next_sibling : at(gone.parent).first_child) =
        gone.next_sibling;
    if (gone.next_sibling != kNone) at(gone.next_sibling).previous_sibling = gone.previous_sibling;
  }
  gone = Node();
  unused_.push_back(node);
}

}  // namespace chorus
