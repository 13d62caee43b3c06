// NumPy's .npy files: one C-ordered array of a plain data type (format versions 1 to 3, see numpy.lib.format).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace chorus {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool fortran_order = false;  // the first index of an element varies fastest, not the last one
  uint64_t header_bytes = 0;   // before the values
  uint64_t data_bytes = 0;     // of the values
};

// An npy header with what precedes it is no longer.
inline constexpr size_t kMaxNpyHeaderBytes = 10012;

// Reads the header from the beginning of a file. Types and errors are those of parseNpy, but Fortran order is accepted.
NpyHeader parseNpyHeader(std::span<const std::byte> begin, std::string_view source);

struct NpyArray {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // view into the parsed bytes; may be unaligned
};

// Supported types: b1 u1 i1 i2 i4 i8 f2 f4 f8 in little-endian or native order, and V2, which is read as bfloat16
// because TensorRT-LLM's converters write bfloat16 so. Accepts no file that numpy.load(allow_pickle=False) refuses.
// Throws Error(kCorrupt) for a malformed header, Error(kUnsupported) for Fortran order and for any other type (it is
// named), such as a big-endian one or objects.
NpyArray parseNpy(std::span<const std::byte> bytes, std::string_view source);

// The file header of a C-ordered array, byte for byte as numpy.save writes it. dtype: one that parseNpy supports.
std::string npyHeader(DType dtype, std::span<const int64_t> shape);
// The contents of the whole file for a C-ordered array. data: as many elements as the product of `shape`.
std::string npyBytes(DType dtype, std::span<const int64_t> shape, const void* data);

// Writes an array piece by piece, for arrays that do not fit in memory. The file appears at `path` only in finish();
// without finish(), or after an error, nothing is left on disk.
class NpyWriter {
 public:
  // Throws Error(kExhausted) when no file can be written at `path`.
  NpyWriter(std::filesystem::path path, DType dtype, std::span<const int64_t> shape);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // Appends the next elements of the array in row-major order. Throws Error(kExhausted).
  void append(std::span<const std::byte> bytes);
  // Checks that the array is whole, syncs and renames.
  void finish();

 private:
  void writeAll(const char* data, size_t size);

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
  uint64_t left_ = 0;  // bytes of the array that are not yet written
};

}  // namespace chorus
