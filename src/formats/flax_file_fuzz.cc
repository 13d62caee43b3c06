// Arbitrary bytes are either refused with an Error or give arrays whose chunks lie inside the file. Together the chunks
// of an array have the size that its shape says.
// parses: src/formats/flax_file.cc src/formats/msgpack.cc
#include "formats/flax_file.h"

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    uint64_t total = 0;
    for (const chorus::FlaxArray& array : chorus::parseFlaxFile(bytes, "fuzz")) {
      uint64_t count = 1, stored = 0;
      for (const int64_t extent : array.shape) count *= static_cast<uint64_t>(extent);
      for (const auto& chunk : array.chunks) {
        volatile std::byte sink{};
        for (const std::byte b : chunk) sink = b;
        static_cast<void>(sink);
        if (!chunk.empty() && (chunk.data() < bytes.data() || chunk.data() + chunk.size() > bytes.data() + size)) {
          std::abort();
        }
        stored += chunk.size();
      }
      if (count * chorus::dtypeSize(array.dtype) != stored) std::abort();
      total += stored;
    }
    if (total > size) std::abort();
  } catch (const chorus::Error&) {
  }
}
