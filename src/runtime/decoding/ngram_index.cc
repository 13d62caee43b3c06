#include "runtime/decoding/ngram_index.h"

#include <algorithm>
#include <bit>

#include "base/random_bits.h"
#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t multiply(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  const uint64_t sum = static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}
uint64_t add(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}

uint64_t valueOf(int32_t token) { return uint64_t{static_cast<uint32_t>(token)} + 1; }
uint64_t keyOf(uint64_t gram, int32_t token) { return mixBits(gram + valueOf(token) * 0x9e3779b97f4a7c15u); }

}  // namespace

NgramIndex::NgramIndex(int32_t size, size_t capacity) : begun_(static_cast<size_t>(size) - 1) {
  const size_t ngrams = capacity > begun_ ? capacity - begun_ : 0;
  for (int i = 0; i < 2; ++i) {
    bases_[i] = randomBits() % (kPrime - 1) + 1;
    leaving_[i] = 1;
    uint64_t power = bases_[i];
    for (size_t n = begun_ > 0 ? begun_ - 1 : 0; n > 0; n >>= 1) {
      if ((n & 1) != 0) leaving_[i] = multiply(leaving_[i], power);
      power = multiply(power, power);
    }
  }
  // An n-gram longer than the sequence can become never repeats: the tables stay empty.
  if (ngrams == 0) return;
  window_.resize(begun_);
  entries_.reserve(ngrams);
  heads_.assign(std::bit_ceil(ngrams + ngrams / 2 + 1), -1);
  known_.assign(heads_.size(), -1);
}

uint64_t NgramIndex::gram() const { return mixBits(mixBits(hashes_[0]) + hashes_[1]); }

int32_t NgramIndex::headOf(uint64_t gram) const {
  if (heads_.empty()) return -1;
  const size_t mask = heads_.size() - 1;
  for (size_t i = gram & mask;; i = (i + 1) & mask) {
    if (heads_[i] < 0 || entries_[static_cast<size_t>(heads_[i])].gram == gram) return heads_[i];
  }
}

void NgramIndex::insert(uint64_t gram, int32_t token) {
  const size_t mask = heads_.size() - 1;
  size_t i = keyOf(gram, token) & mask;
  for (; known_[i] >= 0; i = (i + 1) & mask) {
    const Entry& entry = entries_[static_cast<size_t>(known_[i])];
    if (entry.gram == gram && entry.token == token) return;
  }
  const auto added = static_cast<int32_t>(entries_.size());
  known_[i] = added;
  size_t head = gram & mask;
  while (heads_[head] >= 0 && entries_[static_cast<size_t>(heads_[head])].gram != gram) head = (head + 1) & mask;
  entries_.push_back({gram, token, heads_[head]});
  heads_[head] = added;
}

void NgramIndex::append(int32_t token) {
  if (heads_.empty()) return;
  if (seen_ >= begun_) insert(gram(), token);
  if (begun_ > 0) {
    int32_t& place = window_[seen_ % begun_];
    for (int i = 0; i < 2; ++i) {
      uint64_t& hash = hashes_[i];
      if (seen_ >= begun_) hash = add(hash, kPrime - multiply(valueOf(place), leaving_[i]));
      hash = add(multiply(hash, bases_[i]), valueOf(token));
    }
    place = token;
  }
  ++seen_;
}

}  // namespace chorus
