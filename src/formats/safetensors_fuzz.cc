// Arbitrary bytes are either refused with an Error or give tensor views that lie inside them.
// parses: src/formats/safetensors.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "formats/safetensors.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto file = chorus::Safetensors::parse(bytes, "fuzz");
    size_t total = 0;
    for (const auto& name : file.names()) {
      const chorus::TensorView* tensor = file.find(name);
      if (tensor == nullptr) std::abort();
      total += tensor->bytes.size();
      if (!tensor->bytes.empty() && (tensor->bytes.data() < bytes.data() ||
                                     tensor->bytes.data() + tensor->bytes.size() > bytes.data() + bytes.size())) {
        std::abort();
      }
    }
    if (total > size) std::abort();
  } catch (const chorus::Error&) {
  }
}
