// The rank file of an engine directory: packed tensors behind a JSON index. Programs map it into memory.
//
//   bytes 0..7    magic "CHORUSEN"
//   bytes 8..15   size of the index, little-endian
//   index         {"packing_version": 1, "tensors": [{"name", "kind", "dtype", "rows", "cols", "offset", "bytes"}]},
//                 int8 and int4 linears also have the "group", "scale_dtype" and, unless it is int16, "activations"
//                 of WeightFormat; linears with one weight for each expert have their number, "experts"
//   data          each tensor at its offset from the start of the file, a multiple of 4096
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/weight_packer.h"

namespace chorus {

inline constexpr std::string_view kEngineFileMagic = "CHORUSEN";
inline constexpr uint64_t kEngineFileAlignment = 4096;

enum class EngineTensorKind {
  kLinear,  // packed (kernels/weight_packer.h), rows = out, cols = in
  kTable,   // row-major
  kVector,  // float32, rows = 1
};

struct EngineTensor {
  std::string name;
  EngineTensorKind kind = EngineTensorKind::kVector;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group = 0;  // this and the next two as in WeightFormat
  DType scale_dtype = DType::kFloat32;
  InputFormat activations = InputFormat::kInt16;
  // Number of weights [rows, cols] of a linear with experts, which lie at expertStride() (WeightPacker); 0: the tensor
  // is one weight.
  int64_t experts = 0;
  uint64_t offset = 0;  // set by the writer
  uint64_t bytes = 0;   // set by the writer, from kind, dtype and shape

  WeightFormat format() const { return {dtype, group, scale_dtype, activations}; }
};

// Size of a tensor of this kind, dtype and shape. Throws Error(kCorrupt) if it is out of range.
uint64_t tensorBytes(const EngineTensor& tensor, const WeightPacker& packer);

// Reads the index of a whole file. Throws Error(kCorrupt) unless the file has exactly this format: magic and version
// are right, sizes match shapes, offsets are aligned and inside the file, and names are unique.
std::vector<EngineTensor> parseEngineFile(std::span<const std::byte> file, std::string_view source,
                                          const WeightPacker& packer);

// The bytes before the first tensor: magic, size of the index, index.
std::string engineFileHead(std::span<const EngineTensor> tensors);

}  // namespace chorus
