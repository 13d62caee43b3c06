// What stands in which KV block: an index of complete blocks by what their keys and values depend on.
//
// The keys and values of a block follow from every token up to its end, the adapter and the salt. So a block
// is known by its realm (a number for adapter content and salt), the block before it, and its own tokens; the
// block before it stands for all earlier tokens, because equal prefixes are one chain of blocks. Hashes only
// find candidates: realm, parent and tokens are compared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

// Not thread-safe. Sized once: nothing allocates after construction.
class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  // For blocks [0, num_blocks) of tokens_per_block tokens. hash_mask: for tests, to make hashes collide. Hashes have a
  // random key, so that nobody can choose tokens whose blocks all lie in one bucket.
  PrefixTree(int32_t num_blocks, int32_t tokens_per_block, uint64_t hash_mask = ~uint64_t{0});

  // The block that holds these tokens after `parent` (kNone: at the start of a sequence), or kNone.
  int32_t find(uint64_t realm, int32_t parent, std::span<const int32_t> tokens) const;
  // The block is complete with these tokens. Neither the block nor its content is in the tree yet; the parent
  // is.
  void insert(int32_t block, uint64_t realm, int32_t parent, std::span<const int32_t> tokens);
  // The block's content is gone. It has no children.
  void erase(int32_t block);

  bool contains(int32_t block) const { return node(block).in_tree; }
  int32_t children(int32_t block) const { return node(block).children; }
  int32_t parent(int32_t block) const { return node(block).parent; }
  // One of its children; kNone without any.
  int32_t someChild(int32_t block) const { return node(block).first_child; }
  uint64_t realm(int32_t block) const { return node(block).realm; }
  // Number of the content: equal for equal content, other contents may share it.
  uint64_t hash(uint64_t realm, int32_t parent, std::span<const int32_t> tokens) const;

 private:
  struct Node {
    uint64_t hash = 0;
    uint64_t realm = 0;
    int32_t parent = kNone;
    int32_t next = kNone;  // of the same bucket
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
  std::vector<int32_t> buckets_;  // first block of each; a power of two of them
};

}  // namespace chorus
