// Arbitrary bytes are either refused with an Error or give tensors whose bytes can be read, whose sizes match their
// shapes, and whose copies are together no larger than the file. A file that is read whole can also be read by its
// header, with the same names and shapes.
// parses: src/formats/torch_file.cc src/formats/torch_contents.cc src/formats/torch_objects.cc src/formats/pickle.cc
// src/formats/zip_directory.cc
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "formats/torch_contents.h"
#include "formats/torch_file.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

namespace {

// Reads the header of a file from memory in which only the bytes that it asks for are those of the file.
chorus::TorchFile parseHeader(std::span<const std::byte> bytes) {
  std::vector<std::byte> memory(bytes.size());
  const auto need = [&](size_t at, size_t size) {
    if (size > 0) std::memcpy(memory.data() + at, bytes.data() + at, size);
  };
  return chorus::TorchFile::parseHeader(chorus::PartialBytes(memory, need), "fuzz");
}

// `file`: the same bytes, read whole. Null: they were refused.
void checkHeader(std::span<const std::byte> bytes, const chorus::TorchFile* file) {
  if (!chorus::isTorchArchive(bytes) && !chorus::isTorchPickle(bytes)) return;
  try {
    const auto header = parseHeader(bytes);
    if (file == nullptr) return;
    if (header.hasValues() || header.names() != file->names()) std::abort();
    for (const auto& name : file->names()) {
      const chorus::TensorView &a = *header.find(name), &b = *file->find(name);
      if (a.dtype != b.dtype || a.shape != b.shape || a.bytes.size() != b.bytes.size()) std::abort();
      volatile std::byte sink{};
      for (const std::byte zero : a.bytes) sink = zero;
      static_cast<void>(sink);
    }
  } catch (const chorus::Error&) {
    if (file != nullptr) std::abort();
  }
}

}  // namespace

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
    checkHeader(bytes, &file);
  } catch (const chorus::Error&) {
    checkHeader(bytes, nullptr);
  }
}
