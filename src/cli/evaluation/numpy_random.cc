#include "cli/evaluation/numpy_random.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace chorus {
namespace {

using Uint128 = unsigned __int128;

// Draws a number from 0 to `most`: outputs are cut to the number of bits of `most` until one is not too large.
uint32_t upTo(uint32_t most, const auto& next) {
  if (most == 0) return 0;
  const uint32_t mask = std::bit_ceil(uint64_t{most} + 1) - 1;
  for (;;) {
    const uint32_t value = static_cast<uint32_t>(next()) & mask;
    if (value <= most) return value;
  }
}

// NumPy's SeedSequence: turns a seed into the state of a generator.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    uint32_t factor = 0x43b0d7e5;
    const auto hash = [&](uint32_t value) {
      value ^= factor;
      factor *= 0x931e8875;
      value *= factor;
      return value ^ value >> 16;
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i]);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = mixed ^ mixed >> 16;
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> words = {};
    uint32_t factor = 0x8b51f9dd;
    for (size_t i = 0; i < 2 * words.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ factor;
      factor *= 0x58f38ded;
      value *= factor;
      value ^= value >> 16;
      words[i / 2] |= uint64_t{value} << (i % 2 * 32);
    }
    return words;
  }

 private:
  std::array<uint32_t, 4> pool_ = {};
};

// PCG64: a linear congruential generator of 128 bits with the output function XSL-RR.
class Pcg64 {
 public:
  explicit Pcg64(const std::array<uint64_t, 4>& seed)
      : increment_((Uint128{seed[2]} << 64 | seed[3]) << 1 | 1),
        state_(increment_ + (Uint128{seed[0]} << 64 | seed[1])) {
    step();
  }

  // Half of an output at a time, the low half first.
  uint32_t next() {
    if (std::exchange(has_half_, !has_half_)) return half_;
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    const uint64_t output = std::rotr(high ^ low, static_cast<int>(high >> 58));
    half_ = static_cast<uint32_t>(output >> 32);
    return static_cast<uint32_t>(output);
  }

 private:
  void step() { state_ = state_ * (Uint128{2549297995355413924U} << 64 | 4865540595714422341U) + increment_; }

  Uint128 increment_, state_;
  bool has_half_ = false;
  uint32_t half_ = 0;
};
}  // namespace

std::vector<size_t> numpyPermutation(uint64_t seed, size_t count) {
  Pcg64 generator(SeedSequence(seed).state());
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = count; i-- > 1;) {
    std::swap(order[i], order[upTo(static_cast<uint32_t>(i), [&] { return generator.next(); })]);
  }
  return order;
}

std::vector<size_t> NumpyChoices::draw(size_t count) {
  std::vector<size_t> chosen(count);
  for (size_t& index : chosen) index = upTo(static_cast<uint32_t>(count - 1), [&] { return generator_(); });
  return chosen;
}

}  // namespace chorus
