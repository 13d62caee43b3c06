// Arbitrary bytes are either refused with an Error or give arrays whose values lie inside the file, or unpack to the
// size that their header says.
// parses: src/formats/npz.cc src/formats/inflate.cc src/formats/npy.cc
#include "formats/npz.h"

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "fuzz/fuzz_target.h"

namespace {

// A compressed array may unpack to a thousand times its size, so only small ones are unpacked here.
constexpr uint64_t kMostUnpacked = 32 << 10;

}  // namespace

// An empty input takes under 20 us, and zlib unpacks kMostUnpacked bytes in 200 us. The rest of the time limit allows
// for two Errors that are formatted and thrown, and for cache misses that other programs cause. The memory limit covers
// the window and the tables of zlib, what is unpacked, the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 1000, .bytes = 160 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const chorus::NpzFile file = chorus::NpzFile::parse(bytes, "fuzz");
    uint64_t left = kMostUnpacked;
    for (const chorus::NpzArray& array : file.arrays()) {
      if (!array.entry.deflated) {
        const auto values = file.stored(array);
        if (values.size() != array.header.data_bytes) std::abort();
        if (values.data() < bytes.data() || values.data() + values.size() > bytes.data() + size) std::abort();
      } else if (array.entry.size > left) {
        continue;
      } else {
        left -= array.entry.size;
      }
      uint64_t unpacked = 0;
      try {
        file.unpack(array, [&](std::span<const std::byte> piece) { unpacked += piece.size(); });
      } catch (const chorus::Error&) {
        if (unpacked > array.header.data_bytes) std::abort();
        return;
      }
      if (unpacked != array.header.data_bytes) std::abort();
    }
  } catch (const chorus::Error&) {
  }
}
