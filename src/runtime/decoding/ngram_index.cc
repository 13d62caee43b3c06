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

NgramIndex::NgramIndex(int32_t size, size_t expected) : begun_(static_cast<size_t>(size) - 1) {
  for (int i = 0; i < 2; ++i) {
    bases_[i] = randomBits() % (kPrime - 1) + 1;
    leaving_[i] = 1;
    uint64_t power = bases_[i];
    for (size_t n = begun_ > 0 ? begun_ - 1 : 0; n > 0; n >>= 1) {
      if ((n & 1) != 0) leaving_[i] = multiply(leaving_[i], power);
      power = multiply(power, power);
    }
  }
  window_.reserve(std::min(begun_, expected));
  if (expected > begun_) makeRoom(expected - begun_);
}

uint64_t NgramIndex::gram() const { return mixBits(mixBits(hashes_[0]) + hashes_[1]); }

int32_t NgramIndex::headOf(uint64_t gram) const { return heads_.empty() ? -1 : heads_[headSlotOf(gram)]; }

// The slot of heads_ that has the gram, or the free one where it belongs.
size_t NgramIndex::headSlotOf(uint64_t gram) const {
  const size_t mask = heads_.size() - 1;
  size_t slot = gram & mask;
  while (heads_[slot] >= 0 && entries_[static_cast<size_t>(heads_[slot])].gram != gram) slot = (slot + 1) & mask;
  return slot;
}

// The slot of known_ that has the entry of `gram` and `token`, or the free slot where it belongs.
size_t NgramIndex::knownSlotOf(uint64_t gram, int32_t token) const {
  const size_t mask = known_.size() - 1;
  for (size_t slot = keyOf(gram, token) & mask;; slot = (slot + 1) & mask) {
    if (known_[slot] < 0) return slot;
    const Entry& entry = entries_[static_cast<size_t>(known_[slot])];
    if (entry.gram == gram && entry.token == token) return slot;
  }
}

// At most two thirds of the slots are taken. The tables at least double when they grow.
void NgramIndex::makeRoom(size_t ngrams) {
  const size_t slots = std::bit_ceil(ngrams + ngrams / 2 + 1);
  if (slots <= heads_.size()) return;
  entries_.reserve(slots / 3 * 2 + 1);
  heads_.assign(slots, -1);
  known_.assign(slots, -1);
  // In the order in which they were added, because the head of a gram is the last entry with it.
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& [gram, token, earlier] = entries_[i];
    heads_[headSlotOf(gram)] = known_[knownSlotOf(gram, token)] = static_cast<int32_t>(i);
  }
}

void NgramIndex::insert(uint64_t gram, int32_t token) {
  makeRoom(entries_.size() + 1);
  int32_t& known = known_[knownSlotOf(gram, token)];
  if (known >= 0) return;
  int32_t& head = heads_[headSlotOf(gram)];
  entries_.push_back({gram, token, head});
  known = head = static_cast<int32_t>(entries_.size()) - 1;
}

void NgramIndex::append(int32_t token) {
  if (seen_ >= begun_) insert(gram(), token);
  if (begun_ > 0) {
    if (seen_ < begun_) window_.push_back(token);
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
