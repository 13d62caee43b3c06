// Reads arbitrary bytes as an engine's rank file. They are either refused with an Error or give an index that stays the
// same when it is written and read again.
// parses: src/engine/engine_file.cc
#include <algorithm>
#include <string>

#include "base/error.h"
#include "engine/engine_file.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto tensors = chorus::parseEngineFile(bytes, "fuzz", chorus::weightPacker("cpu"));
    for (const auto& tensor : tensors) {
      if (tensor.offset + tensor.bytes > size) __builtin_trap();
    }
    std::string again = chorus::engineFileHead(tensors);
    again.resize(std::max(again.size(), size));
    const auto read = chorus::parseEngineFile(std::as_bytes(std::span(again)), "fuzz", chorus::weightPacker("cpu"));
    if (chorus::engineFileHead(read) != chorus::engineFileHead(tensors)) __builtin_trap();
  } catch (const chorus::Error&) {
  }
}
