// Seeded mutations of bytes, for replaying fuzz corpora and for tests of malformed files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace chorus::test {

// Makes one to eight edits: changes, inserts or removes a byte or bit, cuts off the end, copies a short run elsewhere.
inline std::vector<uint8_t> mutateBytes(const std::vector<uint8_t>& original, std::mt19937_64& rng) {
  std::vector<uint8_t> bytes = original;
  const int edits = 1 + static_cast<int>(rng() % 8);
  for (int i = 0; i < edits; ++i) {
    const size_t at = bytes.empty() ? 0 : rng() % bytes.size();
    switch (rng() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(rng());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << (rng() % 8));
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<uint8_t>(rng()));
        break;
      case 3:
        if (!bytes.empty()) bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        if (rng() % 8 == 0) bytes.resize(at);
        break;
      default: {  // copy a short run elsewhere: doubles keys, shifts structure
        const size_t length = std::min<size_t>(1 + rng() % 16, bytes.size() - at);
        const std::vector<uint8_t> run(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                       bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
        const size_t to = bytes.empty() ? 0 : rng() % bytes.size();
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(to), run.begin(), run.end());
        break;
      }
    }
  }
  return bytes;
}

}  // namespace chorus::test
