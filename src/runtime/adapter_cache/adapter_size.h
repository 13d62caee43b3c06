// What an adapter takes of a cache, and what a cache may hold: two measures, and both must fit.
//
// Bytes are memory as it is really taken: packed A pads the rank to panels of 16. Elements are what TensorRT-LLM and
// NIM count by, strictly proportional to the rank: a store for 8 adapters of rank 64 holds exactly 32 of rank 16.
#pragma once

#include <cstdint>
#include <limits>

namespace chorus {

struct AdapterSize {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;

  int64_t bytes = 0;     // over all ranks of the engine
  int64_t elements = 0;  // of A and B over all modules, rank x (in + out) each, whole and unpadded

  bool within(const AdapterSize& limit) const { return bytes <= limit.bytes && elements <= limit.elements; }
  AdapterSize& operator+=(const AdapterSize& other) {
    bytes += other.bytes;
    elements += other.elements;
    return *this;
  }
  AdapterSize& operator-=(const AdapterSize& other) {
    bytes -= other.bytes;
    elements -= other.elements;
    return *this;
  }
  friend AdapterSize operator+(AdapterSize a, const AdapterSize& b) { return a += b; }
  friend AdapterSize operator-(AdapterSize a, const AdapterSize& b) { return a -= b; }
  friend bool operator==(const AdapterSize&, const AdapterSize&) = default;
};

}  // namespace chorus
