// Arbitrary bytes as an engine rank file: refused with an Error or parsed within bounds.
// parses: src/engine/engine_file.cc
#include "base/error.h"
#include "engine/engine_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    for (const auto& tensor : chorus::parseEngineFile(bytes, "fuzz")) {
      if (tensor.offset + tensor.bytes > size) __builtin_trap();
    }
  } catch (const chorus::Error&) {
  }
  return 0;
}
