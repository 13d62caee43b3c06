// Arbitrary bytes are refused with an Error or unpack to at most the bound that is given.
// parses: src/formats/gunzip.cc
#include <cstdlib>

#include "base/error.h"
#include "formats/gunzip.h"
#include "fuzz/fuzz_target.h"

// libarchive allocates 64 KiB for what it unpacks, and zlib its window. An input may unpack to kMost bytes, which are
// written, mapped and read.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 12000, .bytes = 512 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  constexpr uint64_t kMost = 1 << 20;
  try {
    const auto file = chorus::gunzip(std::as_bytes(std::span(data, size)), "fuzz", kMost, chorus::UnpackTo::kMemory);
    if (file->bytes().size() > kMost) std::abort();
    volatile std::byte sink{};
    for (const std::byte b : file->bytes()) sink = b;
    static_cast<void>(sink);
  } catch (const chorus::Error&) {
  }
}
