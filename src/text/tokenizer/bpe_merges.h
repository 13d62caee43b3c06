// The merge table of a byte pair encoding (BPE) model and its application to a sequence of symbols.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/seeded_hash.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

class BpeMerges {
 public:
  BpeMerges() : table_(kSmallest) {}
  void reserve(size_t count);
  // The pair (left, right) merges into id; lower ranks are applied first. Adding a pair again replaces its rank and id.
  // No id is negative.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t id);
  size_t memoryBytes() const { return table_.capacity() * sizeof(Merge); }

  // Applies merges in place, lowest rank first and leftmost first among equal ranks, until none is left. Returns the
  // number of remaining symbols, which are at the front of `symbols`. Time is O(n log n), and O(n) for a long run of
  // one symbol. Additional memory: a queue of about a quarter as many entries as symbols, or a few kilobytes if that is
  // more.
  size_t apply(std::span<int32_t> symbols, EncodeWork& work) const;

 private:
  class Row;
  struct Merge {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr size_t kSmallest = 16;

  static uint64_t pairOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // The place of the pair in the table, or the free place where it belongs.
  size_t placeOf(uint64_t pair) const {
    size_t at = hash_(pair) & (table_.size() - 1);
    while (table_[at].pair != pair && table_[at].pair != kNoPair) at = (at + 1) & (table_.size() - 1);
    return at;
  }
  const Merge* find(int32_t left, int32_t right) const {
    const Merge& merge = table_[placeOf(pairOf(left, right))];
    return merge.pair == kNoPair ? nullptr : &merge;
  }
  void resize(size_t places);

  // A hash table with open addressing, at most three quarters full; its size is a power of two. A lookup reads one
  // cache line, a third of what a node-based map reads.
  std::vector<Merge> table_;
  size_t count_ = 0;
  SeededHash hash_;
};

}  // namespace chorus
