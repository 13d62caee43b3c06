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

// Little-endian b1 u1 i1 i2 i4 i8 f2 f4 f8, and V2 as bfloat16 (what TensorRT-LLM's converters write). Accepts no file
// that numpy.load(allow_pickle=False) refuses. Throws Error(kCorrupt) on a header that is not numpy's,
// Error(kUnsupported) that names another type, such as a big-endian one or objects, or Fortran order.
NpyArray parseNpy(std::span<const std::byte> bytes, std::string_view source);

// The whole file for a C-ordered array. data holds the product of shape elements.
std::string npyBytes(DType dtype, std::span<const int64_t> shape, const void* data);

}  // namespace chorus
