// A hash with a secret: whoever chooses the keys of a table cannot choose them to collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace chorus {

class SeededHash {
 public:
  using is_transparent = void;

  SeededHash() {
    std::random_device random;
    seed_ = static_cast<uint64_t>(random()) << 32 | random();
  }

  // Not noexcept: the standard library then keeps each key's hash beside it.
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
  // Both halves of a product: every bit of the result depends on every bit of both factors.
  static uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  uint64_t seed_;
};

}  // namespace chorus
