// The prefix tree of the KV cache: an index of token prefixes, in whole blocks, for which keys and values are cached.
//
// The keys and values of a block depend on every token up to its end and on the cache namespace (`cache_namespace`, a
// number for adapter content and salt). A node stands for such a prefix. It is identified by its namespace, its parent,
// which is the node of the prefix that is one block shorter, and the tokens of its last block. Hashes only find
// candidates; namespace, parent and tokens are then compared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

// Not thread-safe. Sized at construction: nothing allocates afterwards.
class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  // At most num_nodes nodes, for blocks of tokens_per_block tokens. hash_mask is for tests, to make hashes collide.
  // Hashes have a random key, so that clients cannot choose tokens whose nodes all fall into one bucket.
  PrefixTree(int32_t num_nodes, int32_t tokens_per_block, uint64_t hash_mask = ~uint64_t{0});

  // The node that continues `parent` (kNone: at the start of a sequence) by these tokens; kNone if there is none.
  int32_t find(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const;
  // Adds the node that find() did not find, and returns it; kNone if all nodes are used. Precondition: `parent` is a
  // node of this namespace, or kNone.
  int32_t insert(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens);
  // Removes a node. Precondition: it has no children.
  void erase(int32_t node);

  int32_t parent(int32_t node) const { return at(node).parent; }
  // Returns one of the node's children; kNone if it has none.
  int32_t someChild(int32_t node) const { return at(node).first_child; }
  uint64_t namespaceOf(int32_t node) const { return at(node).cache_namespace; }
  // A hash of the content: equal contents have equal hashes, different contents may collide.
  uint64_t hash(uint64_t cache_namespace, int32_t parent, std::span<const int32_t> tokens) const;

 private:
  struct Node {
    uint64_t hash = 0;
    uint64_t cache_namespace = 0;
    int32_t parent = kNone;
    int32_t next = kNone;  // next node of the same bucket
    int32_t first_child = kNone;
    int32_t previous_sibling = kNone;
    int32_t next_sibling = kNone;
    bool in_tree = false;
  };
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  std::span<const int32_t> tokensOf(int32_t node) const {
    const auto width = static_cast<size_t>(tokens_per_block_);
    return std::span(tokens_).subspan(static_cast<size_t>(node) * width, width);
  }

  int32_t tokens_per_block_;
  uint64_t hash_mask_;
  uint64_t key_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;   // nodes that are not in the tree
  std::vector<int32_t> tokens_;   // [nodes, tokens_per_block]
  std::vector<int32_t> buckets_;  // first node of each bucket; the size is a power of two
};

}  // namespace chorus
