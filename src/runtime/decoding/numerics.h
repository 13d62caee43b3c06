// Numeric helpers that the passes over logits and the sampler's hashes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace chorus {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Loops over logits keep this many partial results, so that the compiler uses vectors and the result does not depend on
// their width.
inline constexpr size_t kLanes = 16;

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): each bit
// of x changes about half of the result's bits.
inline uint64_t mixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace chorus
