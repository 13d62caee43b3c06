// The prefix tree of the KV cache: an index of complete blocks by all that their keys and values depend on.
//
// The keys and values of a block depend on every token up to its end and on the cache namespace (`cache_namespace`, a
// number for adapter content and salt). A block is therefore identified by its namespace, its parent, which is the
// block before it, and its own tokens. The parent stands for all earlier tokens, because sequences with equal prefixes
// share one chain of blocks. Hashes only find candidates; namespace, parent and tokens are then compared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

// Not thread-safe. Sized at construction: nothing allocates afterwards.
class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  // For blocks [0, num_blocks) of tokens_per_block tokens. hash_mask is for tests, to make hashes collide. Hashes have
  // a random key, so that clients cannot choose tokens whose blocks all fall into one bucket.
  PrefixTree(int32_t num_blocks, int32_t tokens_per_block, uint64_t hash_mask = ~uint64_t{0});

  // The block with these tokens after `parent` (kNone: at the start of a sequence); kNone if there is none.
  int32_t find(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const;
  // Adds a complete block. Preconditions: neither the block nor its content is in the tree, and `parent` is, unless
  // kNone.
  void insert(int32_t block, uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens);
  // Removes a block. Precondition: it has no children.
  void erase(int32_t block);

  bool contains(int32_t block) const { return node(block).in_tree; }
  int32_t children(int32_t block) const { return node(block).children; }
  int32_t parent(int32_t block) const { return node(block).parent; }
  // One of the block's children; kNone if it has none.
  int32_t someChild(int32_t block) const { return node(block).first_child; }
  uint64_t namespaceOf(int32_t block) const { return node(block).cache_namespace; }
  // A hash of the content: equal contents have equal hashes, different contents may collide.
  uint64_t hash(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const;

 private:
  struct Node {
    uint64_t hash = 0;
    uint64_t cache_namespace = 0;
    int32_t parent = kNone;
    int32_t next = kNone;  // next block of the same bucket
    int32_t children = 0;
    int32_t first_child = kNone;
    int32_t previous_sibling = kNone;
    int32_t next_sibling = kNone;
    bool in_tree = false;
  };
  const Node& node(int32_t block) const { return nodes_[static_cast<size_t>(block)]; }
  Node& node(int32_t block) { return nodes_[static_cast<size_t>(block)]; }
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  std::span<const int32_t> tokensOf(int32_t block) const {
    const auto width = static_cast<size_t>(tokens_per_block_);
    return std::span(tokens_).subspan(static_cast<size_t>(block) * width, width);
  }

  int32_t tokens_per_block_;
  uint64_t hash_mask_;
  uint64_t key_;
  std::vector<Node> nodes_;       // [blocks]
  std::vector<int32_t> tokens_;   // [blocks, tokens_per_block]
  std::vector<int32_t> buckets_;  // first block of each bucket; the size is a power of two
};

}  // namespace chorus
