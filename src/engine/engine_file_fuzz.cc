// Arbitrary bytes as an engine rank file: refused with an Error, or parsed within bounds to an index that reads the
// same when it is written again.
// parses: src/engine/engine_file.cc
#include <algorithm>
#include <string>

#include "base/error.h"
#include "engine/engine_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto tensors = chorus::parseEngineFile(bytes, "fuzz");
    for (const auto& tensor : tensors) {
      if (tensor.offset + tensor.bytes > size) __builtin_trap();
    }
    std::string again = chorus::engineFileHead(tensors);
    again.resize(std::max(again.size(), size));
    const auto read = chorus::parseEngineFile(std::as_bytes(std::span(again)), "fuzz");
    if (chorus::engineFileHead(read) != chorus::engineFileHead(tensors)) __builtin_trap();
  } catch (const chorus::Error&) {
  }
  return 0;
}
