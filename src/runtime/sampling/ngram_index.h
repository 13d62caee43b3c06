// Which tokens would repeat an n-gram of a sequence, found by what the sequence ends with instead of by looking through
// it: a token costs the same whatever the sequence's and the n-gram's length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorus {

// About 40 bytes for each of `capacity` tokens, taken at construction; append() allocates nothing.
//
// N-grams are told apart by 64 bits of two polynomial hashes modulo 2^61 - 1 whose bases nobody knows, so tokens cannot
// be chosen to collide; by chance two of 32,768 n-grams do in one of 2^34 requests, and a token more is banned.
class NgramIndex {
 public:
  NgramIndex() = default;
  // size > 0. capacity: tokens that will be appended at most.
  NgramIndex(int32_t size, size_t capacity);

  void append(int32_t token);

  // Calls ban(token), once for each token that would complete an n-gram which the sequence holds.
  template <typename Ban>
  void forEachRepeat(Ban ban) const {
    if (seen_ < begun_) return;
    for (int32_t entry = headOf(gram()); entry >= 0; entry = entries_[static_cast<size_t>(entry)].earlier) {
      ban(entries_[static_cast<size_t>(entry)].token);
    }
  }

 private:
  // A distinct n-gram: its first size - 1 tokens, and its last.
  struct Entry {
    uint64_t gram;
    int32_t token;
    int32_t earlier;  // another with the same gram, -1: none
  };
  uint64_t gram() const;
  int32_t headOf(uint64_t gram) const;
  void insert(uint64_t gram, int32_t token);

  size_t begun_ = 0;  // size - 1
  size_t seen_ = 0;   // tokens
  uint64_t bases_[2] = {0, 0};
  uint64_t leaving_[2] = {0, 0};  // what a token counts when it leaves the window: base ^ (size - 2)
  uint64_t hashes_[2] = {0, 0};   // of the last size - 1 tokens
  std::vector<int32_t> window_;   // a ring of these tokens
  std::vector<Entry> entries_;
  std::vector<int32_t> heads_;  // open addressing by gram: the last entry of each; -1: free
  std::vector<int32_t> known_;  // open addressing by gram and token: the entry
};

}  // namespace chorus
