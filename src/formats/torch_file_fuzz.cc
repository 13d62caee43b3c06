// Arbitrary bytes are either refused with an Error or give tensors whose bytes can be read, whose sizes match their
// shapes, and whose copies are together no larger than the file.
// parses: src/formats/torch_file.cc src/formats/torch_objects.cc src/formats/pickle.cc src/formats/zip_directory.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "formats/torch_file.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto file = chorus::TorchFile::parse(bytes, "fuzz");
    size_t copied = 0;
    for (const auto& name : file.names()) {
      const chorus::TensorView* tensor = file.find(name);
      if (tensor == nullptr) std::abort();
      uint64_t count = 1;
      for (const int64_t extent : tensor->shape) count *= static_cast<uint64_t>(extent);
      if (count * chorus::dtypeSize(tensor->dtype) != tensor->bytes.size()) std::abort();
      const std::byte* end = tensor->bytes.data() + tensor->bytes.size();
      const bool inside = tensor->bytes.data() >= bytes.data() && end <= bytes.data() + bytes.size();
      if (!inside) copied += tensor->bytes.size();
      volatile std::byte sink{};
      for (const std::byte b : tensor->bytes) sink = b;
      static_cast<void>(sink);
    }
    if (copied > size) std::abort();
  } catch (const chorus::Error&) {
  }
}
