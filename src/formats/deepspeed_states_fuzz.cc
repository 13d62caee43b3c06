// Arbitrary bytes are either refused with an Error or give tensors whose bytes can be read and whose sizes match their
// shapes. The copies of tensors are together no larger than the file.
// parses: src/formats/deepspeed_states.cc src/formats/torch_objects.cc src/formats/torch_contents.cc
#include "formats/deepspeed_states.h"

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

namespace {

// Returns the number of bytes that lie outside the input.
size_t readTensor(const chorus::TensorView& tensor, std::span<const std::byte> input) {
  uint64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= static_cast<uint64_t>(extent);
  if (count * chorus::dtypeSize(tensor.dtype) != tensor.bytes.size()) std::abort();
  volatile std::byte sink{};
  for (const std::byte b : tensor.bytes) sink = b;
  static_cast<void>(sink);
  const std::byte* end = tensor.bytes.data() + tensor.bytes.size();
  const bool inside = tensor.bytes.data() >= input.data() && end <= input.data() + input.size();
  return inside ? 0 : tensor.bytes.size();
}

void checkShapes(const std::vector<chorus::NamedShape>& shapes) {
  for (const auto& shape : shapes) {
    for (const int64_t extent : shape.shape) {
      if (extent < 0) std::abort();
    }
  }
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const chorus::DeepSpeedStates states = chorus::parseDeepSpeedStates(bytes, "fuzz");
    size_t copied = 0;
    // Reads no more bytes of each kind of tensor than the file has, because many tensors may be views of the same
    // bytes.
    for (const auto* tensors : {&states.module, &states.frozen_fragments}) {
      size_t read = 0;
      for (const auto& [name, tensor] : *tensors) {
        read += tensor.bytes.size();
        if (read > size) break;
        copied += readTensor(tensor, bytes);
      }
    }
    size_t read = 0;
    for (const auto& tensor : states.partitions) {
      if (tensor.shape.size() != 1) std::abort();
      read += tensor.bytes.size();
      if (read > size) break;
      copied += readTensor(tensor, bytes);
    }
    if (copied > size) std::abort();
    if (states.partition_count < 0) std::abort();
    for (const auto& group : states.param_shapes) checkShapes(group);
    checkShapes(states.frozen_shapes);
  } catch (const chorus::Error&) {
  }
}
