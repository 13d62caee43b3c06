// Arbitrary bytes as an .npy file.
// parses: src/formats/npy.cc
#include "base/error.h"
#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const chorus::NpyArray array = chorus::parseNpy(std::as_bytes(std::span(data, size)), "fuzz");
    if (array.data.size() > size) __builtin_trap();
  } catch (const chorus::Error&) {
  }
  return 0;
}
