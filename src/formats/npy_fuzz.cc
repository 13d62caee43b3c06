// Parses arbitrary bytes as an .npy file.
// parses: src/formats/npy.cc
#include "base/error.h"
#include "formats/npy.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  try {
    const chorus::NpyArray array = chorus::parseNpy(std::as_bytes(std::span(data, size)), "fuzz");
    if (array.data.size() > size) __builtin_trap();
  } catch (const chorus::Error&) {
  }
}
