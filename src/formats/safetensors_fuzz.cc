// Any bytes are either refused with an Error or give views that lie inside them.
// parses: src/formats/safetensors.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
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
  return 0;
}
