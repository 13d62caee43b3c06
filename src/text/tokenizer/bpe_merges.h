// The merge table of a byte pair encoding (BPE) model and its application to a sequence of symbols.
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
  // The pair (left, right) merges into id; lower ranks are applied first. Adding a pair again replaces its rank and id.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t id) { merges_[pairKey(left, right)] = {rank, id}; }
  size_t memoryBytes() const;

  // Applies merges in place, lowest rank first and leftmost first among equal ranks, until none is left. Returns the
  // number of remaining symbols, which are at the front of `symbols`. Time is O(n log n). Additional memory: a queue of
  // about a quarter as many entries as symbols, or a few kilobytes if that is more.
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
