// The size of an adapter and the capacity of a cache, by two measures. An adapter fits only if both measures fit.
//
// Bytes are the memory really taken, in which packed A is padded to a multiple of 16 ranks. Elements are what
// TensorRT-LLM and NIM count. They are strictly proportional to the rank: a cache for 8 adapters of rank 64 holds
// exactly 32 of rank 16.
#pragma once

#include <cstdint>
#include <limits>

namespace chorus {

struct AdapterSize {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 4;

  int64_t bytes = 0;     // over all ranks of the engine
  int64_t elements = 0;  // sum over all modules of rank x (in + out), of whole and unpadded A and B

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
