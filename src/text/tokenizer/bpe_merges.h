// The merges of a byte pair model, and how they are applied to a row of symbols.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/seeded_hash.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

class BpeMerges {
 public:
  void reserve(size_t count) { merges_.reserve(count); }
  // left and right become id; lower ranks come first. A pair that was added before gets the new rank and id.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t id) { merges_[pairKey(left, right)] = {rank, id}; }
  size_t memoryBytes() const;

  // Applies merges by rank, leftmost first among equals, until none is left. Returns how many symbols remain, at the
  // front of the row. O(n log n) in time; beside the row, memory for a quarter of it or a few kilobytes.
  size_t apply(std::span<int32_t> symbols, EncodeWork& work) const;

 private:
  class Row;
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  static uint64_t pairKey(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find(int32_t left, int32_t right) const {
    const auto it = merges_.find(pairKey(left, right));
    return it == merges_.end() ? nullptr : &it->second;
  }

  std::unordered_map<uint64_t, Merge, SeededHash> merges_;
};

}  // namespace chorus
