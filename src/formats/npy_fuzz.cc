// Arbitrary bytes as an .npy file.
// parses: src/formats/npy.cc
#include "base/error.h"
#include "formats/npy.h"
#include "fuzz/fuzz_target.h"

// An empty input costs under 20 us; the rest is room for two refusals, whose messages are formatted and thrown, and for
// what other programs do to the caches. The memory is that of the messages and of the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  try {
    const chorus::NpyArray array = chorus::parseNpy(std::as_bytes(std::span(data, size)), "fuzz");
    if (array.data.size() > size) __builtin_trap();
  } catch (const chorus::Error&) {
  }
}
