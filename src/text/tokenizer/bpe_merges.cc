#include "text/tokenizer/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

namespace chorus {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();
// Sequences of up to this many symbols are merged with one queue for all ranks.
constexpr size_t kShortRow = 4096;
constexpr uint64_t kWorkPerLookup = 16;
}  // namespace

// A sequence of symbols that merge in place. A symbol that covers several places is stored in the first one. Its second
// place holds where the next symbol begins, and its last place where the symbol itself begins, both as ~index. Both
// neighbours are thus found without further memory.
class BpeMerges::Row {
 public:
  Row(const BpeMerges& merges, std::span<int32_t> places, EncodeWork& work)
      : merges_(merges), places_(places), work_(work) {
    most_ = places.size() <= kShortRow ? places.size() : std::max(kShortRow, places.size() / 4);
  }
  ~Row() { work_.scratch.giveBack(taken_); }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  void mergeAll() {
    // Ranks below band.end have been applied.
    Band band{0, 0};
    while (const auto rank = commonRank(band.end)) {
      applyOneRank(*rank);
      places_ = places_.first(compact());
      band.end = uint64_t{*rank} + 1;
    }
    while (band.end < kRanks) {
      band = nextBand(band.end);
      if (band.end == band.begin + 1)
        applyOneRank(band.begin);
      else
        applyBand(band.begin, band.end);
    }
  }

  size_t compact() {
    size_t kept = 0;
    for (size_t at = 0; at < places_.size();) {
      const size_t next = nextOf(at);
      places_[kept++] = places_[at];
      at = next;
    }
    return kept;
  }

 private:
  static constexpr uint64_t kRanks = uint64_t{1} << 32;
  // Ranks [begin, end).
  struct Band {
    uint64_t begin, end;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };

  size_t nextOf(size_t at) const {
    const size_t second = at + 1;
    return second < places_.size() && places_[second] < 0 ? endFrom(at, second) : second;
  }
  // In a symbol of two places the second place is also the last one. It holds the symbol's begin, and its end is
  // second + 1.
  size_t endFrom(size_t at, size_t second) const {
    const auto value = static_cast<size_t>(~places_[second]);
    return value == at ? second + 1 : value;
  }
  size_t previousOf(size_t at) const {
    if (at == 0) return kNone;
    const int32_t before = places_[at - 1];
    return before < 0 ? static_cast<size_t>(~before) : at - 1;
  }

  const Merge* mergeAt(size_t at) {
    const size_t next = nextOf(at);
    if (next >= places_.size()) return nullptr;
    return merges_.find(places_[at], places_[next]);
  }

  void join(size_t at, int32_t id) {
    const size_t right = nextOf(at);
    const size_t end = nextOf(right);
    places_[right] = -1;  // no symbol begins here any more
    places_[at] = id;
    places_[end - 1] = ~static_cast<int32_t>(at);
    if (end - at > 2) places_[at + 1] = ~static_cast<int32_t>(end);
  }

  // The lowest rank of the merges, from `begin` on, if a pass over a long row to apply that rank alone is worth it,
  // because a quarter of the symbols would merge. In a run of one symbol every such pass halves the row.
  std::optional<uint32_t> commonRank(uint64_t begin) {
    constexpr size_t kShare = 4;
    if (places_.size() <= kShortRow || begin >= kRanks) return std::nullopt;
    uint64_t lowest = kRanks;
    size_t count = 0;
    work_.meter.charge(places_.size() * kWorkPerLookup);
    for (size_t at = 0; at + 1 < places_.size(); ++at) {
      const Merge* merge = merges_.find(places_[at], places_[at + 1]);
      if (merge == nullptr || merge->rank < begin || merge->rank > lowest) continue;
      if (merge->rank < lowest) lowest = merge->rank, count = 0;
      ++count;
    }
    if (count < places_.size() / kShare) return std::nullopt;
    return static_cast<uint32_t>(lowest);
  }

  // Returns the next range of ranks, from `begin` on, whose merges fit into the queue together, or else a single rank.
  Band nextBand(uint64_t begin) {
    if (places_.size() <= most_) return {begin, kRanks};
    for (int shift = 32 - kBucketBits;; shift = std::max(0, shift - kBucketBits)) {
      // Histogram of the merges by the next bits of their ranks; counts only ranks that agree with `begin` in the
      // higher bits.
      std::vector<size_t> counts(size_t{1} << kBucketBits);
      const uint64_t width = uint64_t{1} << shift;
      const uint64_t base = begin & ~(width * counts.size() - 1);
      const uint64_t limit = base + width * counts.size();
      for (size_t at = 0; at < places_.size(); at = nextOf(at)) {
        work_.meter.charge(kWorkPerLookup);
        const Merge* merge = mergeAt(at);
        if (merge != nullptr && merge->rank >= begin && merge->rank < limit) ++counts[(merge->rank - base) >> shift];
      }
      size_t sum = 0, bucket = (begin - base) >> shift;
      while (bucket < counts.size() && sum + counts[bucket] <= most_) sum += counts[bucket++];
      const uint64_t end = base + bucket * width;
      if (sum > 0 || bucket == counts.size()) return {begin, end};
      // The first bucket that is not empty has too many merges: search for a smaller range inside it.
      begin = std::max(begin, end);
      if (shift == 0) return {begin, begin + 1};
    }
  }

  void applyBand(uint64_t begin, uint64_t end) {
    queue_.clear();
    for (size_t at = 0; at < places_.size(); at = nextOf(at)) {
      work_.meter.charge(kWorkPerLookup);
      const Merge* merge = mergeAt(at);
      if (merge != nullptr && merge->rank >= begin && merge->rank < end) add({merge->rank, static_cast<uint32_t>(at)});
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
    drain(end);
  }

  // Applies the merges of one rank from left to right. Merges of this or a lower rank that become possible are applied
  // before the next one.
  void applyOneRank(uint64_t rank) {
    queue_.clear();
    for (size_t at = 0; at < places_.size();) {
      work_.meter.charge(kWorkPerLookup);
      const Merge* merge = mergeAt(at);
      if (merge == nullptr || merge->rank != rank) {
        at = nextOf(at);
        continue;
      }
      join(at, merge->id);
      considerAround(at, rank + 1);
      drain(rank + 1);
      // The symbol may have been joined to symbols before it: go back to the start of the joined symbol.
      for (; places_[at] < 0; --at) work_.meter.charge(1);
    }
  }

  void drain(uint64_t end) {
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const Candidate best = queue_.back();
      queue_.pop_back();
      work_.meter.charge(4 * kWorkPerLookup);
      if (isStale(best)) continue;
      join(best.position, mergeAt(best.position)->id);
      considerAround(best.position, end);
    }
  }

  void considerAround(size_t at, uint64_t end) {
    consider(previousOf(at), end);
    consider(at, end);
  }
  void consider(size_t at, uint64_t end) {
    if (at == kNone) return;
    const Merge* merge = mergeAt(at);
    if (merge == nullptr || merge->rank >= end) return;
    add({merge->rank, static_cast<uint32_t>(at)});
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }
  void add(Candidate candidate) {
    if (queue_.size() == queue_.capacity()) dropStale();
    if (queue_.size() == queue_.capacity()) {
      const size_t capacity = std::max<size_t>(32, queue_.capacity() + queue_.capacity() / 2);
      work_.scratch.take(capacity * sizeof(Candidate));
      taken_ += capacity * sizeof(Candidate);
      const size_t before = queue_.capacity() * sizeof(Candidate);
      queue_.reserve(capacity);
      taken_ -= before;
      work_.scratch.giveBack(before);
    }
    queue_.push_back(candidate);
  }

  void dropStale() {
    const size_t before = queue_.size();
    std::erase_if(queue_, [&](const Candidate& candidate) { return isStale(candidate); });
    work_.meter.charge(before * kWorkPerLookup);
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  }
  // True if the symbol no longer begins there or its right neighbour has changed.
  bool isStale(const Candidate& candidate) {
    if (places_[candidate.position] < 0) return true;
    const Merge* merge = mergeAt(candidate.position);
    return merge == nullptr || merge->rank != candidate.rank;
  }

  static constexpr int kBucketBits = 11;

  const BpeMerges& merges_;
  std::span<int32_t> places_;
  EncodeWork& work_;
  size_t most_;  // largest number of candidates at the start of a band
  std::vector<Candidate> queue_;
  size_t taken_ = 0;
};

size_t BpeMerges::apply(std::span<int32_t> symbols, EncodeWork& work) const {
  if (symbols.size() < 2) return symbols.size();
  Row row(*this, symbols, work);
  row.mergeAll();
  return row.compact();
}

void BpeMerges::reserve(size_t count) {
  const size_t places = std::bit_ceil(count + count / 3 + 1);
  if (places > table_.size()) resize(places);
}

void BpeMerges::add(int32_t left, int32_t right, uint32_t rank, int32_t id) {
  const uint64_t pair = pairOf(left, right);
  size_t at = placeOf(pair);
  if (table_[at].pair == kNoPair && 4 * (count_ + 1) > 3 * table_.size()) {
    resize(2 * table_.size());
    at = placeOf(pair);
  }
  count_ += table_[at].pair == kNoPair;
  table_[at] = {pair, rank, id};
}

void BpeMerges::resize(size_t places) {
  const std::vector<Merge> before = std::exchange(table_, std::vector<Merge>(places));
  for (const Merge& merge : before) {
    if (merge.pair != kNoPair) table_[placeOf(merge.pair)] = merge;
  }
}

}  // namespace chorus
