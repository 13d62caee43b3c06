// NumPy's .npy files: one C-ordered array of a plain type (numpy.lib.format, versions 1 to 3).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace chorus {

struct NpyArray {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // into the bytes that were parsed; not necessarily aligned
};

// b1 u1 i1 i2 i4 i8 f2 f4 f8 in little-endian or native order, and V2 as bfloat16 (what TensorRT-LLM's converters
// write). Accepts no file that numpy.load(allow_pickle=False) refuses. Throws Error(kCorrupt) on a header that is not
// numpy's, Error(kUnsupported) that names another type, such as a big-endian one or objects, or Fortran order.
NpyArray parseNpy(std::span<const std::byte> bytes, std::string_view source);

// What stands before the data of a C-ordered array, byte for byte what numpy.save writes. dtype is one that parseNpy
// reads.
std::string npyHeader(DType dtype, std::span<const int64_t> shape);
// The whole file for a C-ordered array. data holds the product of shape elements.
std::string npyBytes(DType dtype, std::span<const int64_t> shape, const void* data);

// Writes a file whose array is too large to hold, piece by piece. The file appears under its name only by finish();
// without it, or after an error, nothing is left behind.
class NpyWriter {
 public:
  // Throws Error(kExhausted) when nothing can be written there.
  NpyWriter(std::filesystem::path path, DType dtype, std::span<const int64_t> shape);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // The next elements of the array, row-major. Throws Error(kExhausted).
  void append(std::span<const std::byte> bytes);
  // Checks that the array is whole, syncs and renames.
  void finish();

 private:
  void writeAll(const char* data, size_t size);

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
  uint64_t left_ = 0;  // bytes of the array that are to come
};

}  // namespace chorus
