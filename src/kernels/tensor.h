// Views of device memory that ops take as arguments. A view does not own its memory; a DeviceBuffer does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace chorus {

// A row-major float32 matrix in device memory. stride: elements from one row to the next.
struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};
struct ConstMatrix {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  ConstMatrix() = default;
  ConstMatrix(const float* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  ConstMatrix(const Matrix& m) : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}  // NOLINT
};

// Storage format of a packed weight. An int8 or int4 weight is an integer times a scale; `group` consecutive inputs of
// one output feature share a scale.
struct WeightFormat {
  DType dtype = DType::kFloat32;
  int64_t group = 0;                    // inputs per scale: 32, 64, 128, or 0: one scale for all inputs of a feature
  DType scale_dtype = DType::kFloat32;  // float32, float16 or bfloat16

  WeightFormat() = default;
  WeightFormat(DType d) : dtype(d) {}  // NOLINT: implicit, because a float format has nothing but its dtype
  WeightFormat(DType d, int64_t inputs, DType scales) : dtype(d), group(inputs), scale_dtype(scales) {}
  bool operator==(const WeightFormat&) const = default;
};
inline bool isQuantised(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }

// The weight [out, in] of a linear, packed in panels of kPanelCols (16) output features. Panel p holds features [16p,
// 16p + 16) for all inputs. Features past `out` and inputs past `in` are zero. Position of element (o, i) in its panel:
//   - float32, float16: [i][o % 16].
//   - bfloat16: [i / 2][o % 16][i % 2], so that one 32-bit lane holds an input pair, which AMX and dot products need.
//   - int8, int4: the panel is a sequence of scale groups. A group is 16 scales (zero for features past `out`), then
//     32-bit lanes [i / 4][o % 16] (int8) or [i / 8][o % 16] (int4), where i counts from the start of the group. An
//     input is stored as integer + 128 (int8) or integer + 8 (int4) in the bits of its lane from packedBit(dtype, i)
//     on. One mask, one OR and one subtraction turn it into a float. If a feature has only one scale, the scale is
//     repeated every kScaleRun inputs.
struct PackedWeight {
  const void* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kFloat32;
  int64_t out = 0;
  int64_t in = 0;
  int64_t group = 0;  // `group` and `scale_dtype` as in WeightFormat
  DType scale_dtype = DType::kFloat32;

  PackedWeight() = default;
  PackedWeight(const void* where, const WeightFormat& f, int64_t out_features, int64_t in_features)
      : data(where), dtype(f.dtype), out(out_features), in(in_features), group(f.group), scale_dtype(f.scale_dtype) {}
  WeightFormat format() const { return {dtype, group, scale_dtype}; }
};
inline constexpr int64_t kPanelCols = 16;
// Inputs per packed scale if a feature has only one scale. A multiple of every group size; products are split only at
// multiples of it.
inline constexpr int64_t kScaleRun = 1024;

// Number of inputs that share one run of 16 packed scales, and the size of such a run in bytes.
inline int64_t packedGroup(const WeightFormat& format) { return format.group > 0 ? format.group : kScaleRun; }
inline int64_t scaleRunBytes(const WeightFormat& format) {
  return kPanelCols * static_cast<int64_t>(dtypeSize(format.scale_dtype));
}
// Inputs in one 32-bit lane of a quantised format.
inline int64_t inputsPerLane(DType dtype) { return dtype == DType::kInt4 ? 8 : 4; }

// Lowest bit of input i in its 32-bit lane. int4: even inputs are in the lower half and odd inputs in the upper half,
// so that a lane shifted right by 0, 4, 8 or 12 bits has an input pair in the lowest bits of its two halves.
constexpr int packedBit(DType dtype, int64_t i) {
  return static_cast<int>(dtype == DType::kInt4 ? i % 2 * 16 + i % 8 / 2 * 4 : i % 4 * 8);
}

// Size in bytes of the first `in` inputs of a panel, and of a whole packed weight. In panelBytes, `in` is the number of
// all inputs or a position at which a product may be split: a multiple of the group, or of 2 for a float format.
inline int64_t panelBytes(const WeightFormat& format, int64_t in) {
  if (isQuantised(format.dtype)) {
    const int64_t group = packedGroup(format), lane = inputsPerLane(format.dtype);
    return (in + group - 1) / group * scaleRunBytes(format) + (in + lane - 1) / lane * 64;
  }
  return format.dtype == DType::kBFloat16 ? (in + 1) / 2 * 64
                                          : in * kPanelCols * static_cast<int64_t>(dtypeSize(format.dtype));
}
inline int64_t packedBytes(const WeightFormat& format, int64_t out, int64_t in) {
  return (out + kPanelCols - 1) / kPanelCols * panelBytes(format, in);
}

// Weights of equal format and size, one for each expert, lie one after the other at this distance in bytes, a multiple
// of 64.
inline int64_t expertStride(const WeightFormat& format, int64_t out, int64_t in) {
  return (packedBytes(format, out, in) + 63) / 64 * 64;
}
// The weight of an expert. first: the weight of expert 0.
inline PackedWeight expertOf(const PackedWeight& first, int64_t expert) {
  PackedWeight own = first;
  own.data = static_cast<const char*>(first.data) +
             static_cast<size_t>(expert * expertStride(first.format(), first.out, first.in));
  return own;
}

}  // namespace chorus
