// A hash with a random secret seed, so that an attacker who chooses the keys of a table cannot make them collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/random_bits.h"

namespace chorus {

class SeededHash {
 public:
  using is_transparent = void;

  SeededHash() : seed_(randomBits()) {}

  // Deliberately not noexcept: the standard library then stores the hash of each key.
  size_t operator()(std::string_view text) const {
    uint64_t hash = seed_ ^ text.size();
    while (text.size() > 8) {
      hash = mix(hash ^ eightBytes(text), kFirst ^ seed_);
      text.remove_prefix(8);
    }
    return static_cast<size_t>(mix(hash ^ eightBytes(text), kSecond ^ seed_));
  }
  size_t operator()(uint64_t key) const { return static_cast<size_t>(mix(key ^ seed_, kFirst ^ (seed_ >> 1))); }

 private:
  static constexpr uint64_t kFirst = 0x9E3779B97F4A7C15u, kSecond = 0xD6E8FEB86659FD93u;

  static uint64_t eightBytes(std::string_view text) {
    uint64_t value = 0;
    std::memcpy(&value, text.data(), text.size() < 8 ? text.size() : 8);
    return value;
  }
  // Combines both halves of the 128-bit product, so that every result bit depends on every bit of both factors.
  static uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  uint64_t seed_;
};

}  // namespace chorus
