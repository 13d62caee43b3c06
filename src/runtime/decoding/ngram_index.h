// Finds the tokens that would repeat an n-gram of a sequence. It looks up a hash of the sequence's last n - 1 tokens,
// so a token costs the same whatever the lengths of the sequence and of the n-gram.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorus {

// Takes up to 56 bytes for each different n-gram, and 4 for each token that an n-gram may begin with.
//
// N-grams are identified by 64 bits of two polynomial hashes modulo 2^61 - 1 with random bases, so tokens cannot be
// chosen to collide. By chance two of 32,768 n-grams collide in one of 2^34 requests; then one more token is banned.
class NgramIndex {
 public:
  NgramIndex() = default;
  // size: n > 0. expected: room for this many tokens is made at once.
  NgramIndex(int32_t size, size_t expected);

  // If it throws std::bad_alloc, the index must not be used any more.
  void append(int32_t token);

  // Calls ban(token) once for each token that would complete an n-gram of the sequence.
  template <typename Ban>
  void forEachRepeat(Ban ban) const {
    if (seen_ < begun_) return;
    for (int32_t entry = headOf(gram()); entry >= 0; entry = entries_[static_cast<size_t>(entry)].earlier) {
      ban(entries_[static_cast<size_t>(entry)].token);
    }
  }

 private:
  // A distinct n-gram: the hash of its first size - 1 tokens, and its last token.
  struct Entry {
    uint64_t gram;
    int32_t token;
    int32_t earlier;  // another entry with the same gram, -1: none
  };
  uint64_t gram() const;
  int32_t headOf(uint64_t gram) const;
  size_t headSlotOf(uint64_t gram) const;
  size_t knownSlotOf(uint64_t gram, int32_t token) const;
  void makeRoom(size_t ngrams);
  void insert(uint64_t gram, int32_t token);

  size_t begun_ = 0;  // size - 1
  size_t seen_ = 0;   // number of appended tokens
  uint64_t bases_[2] = {0, 0};
  uint64_t leaving_[2] = {0, 0};  // factor of the token that leaves the window: base ^ (size - 2)
  uint64_t hashes_[2] = {0, 0};   // of the last size - 1 tokens
  std::vector<int32_t> window_;   // ring of the last size - 1 tokens
  std::vector<Entry> entries_;
  std::vector<int32_t> heads_;  // open addressing by gram: the last entry with it; -1: free
  std::vector<int32_t> known_;  // open addressing by gram and token: the entry; -1: free
};

}  // namespace chorus
