// Views of device memory that ops take and return. A view never owns; a DeviceBuffer does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace chorus {

// A row-major float32 matrix in device memory; stride in elements between rows.
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

// How the elements of a packed weight are held. Those of int8 and int4 are integers times a scale, which `group`
// consecutive inputs of an output feature share.
struct WeightFormat {
  DType dtype = DType::kFloat32;
  int64_t group = 0;                    // 32, 64, 128, or 0: one scale for all inputs of a feature
  DType scale_dtype = DType::kFloat32;  // float32, float16 or bfloat16

  WeightFormat() = default;
  WeightFormat(DType d) : dtype(d) {}  // NOLINT: a float format is its dtype
  WeightFormat(DType d, int64_t inputs, DType scales) : dtype(d), group(inputs), scale_dtype(scales) {}
  bool operator==(const WeightFormat&) const = default;
};
inline bool isQuantised(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }

// The weight of a linear in packed panels: kPanelCols output features each, panel p holding features
// [16p, 16p + 16) for all inputs. Features past `out` and inputs past `in` are zero.
//   float32, float16: element (o, i) of a panel at [i][o % 16]
//   bfloat16:         at [i / 2][o % 16][i % 2], so one 32-bit lane holds an input pair (what AMX and dot
//   products read)
//   int8, int4:       scale groups one after another, each of 16 scales (zero for features past `out`) and then lanes
//   of 32 bits at [i / 4][o % 16] (int8) or [i / 8][o % 16] (int4), an input in the lane's bits from packedBit(dtype,
//   i) on, as integer + 128 or + 8: what one mask and one or turn into a float. A feature's only scale is repeated
//   every kScaleRun inputs
struct PackedWeight {
  const void* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kFloat32;
  int64_t out = 0;
  int64_t in = 0;
  int64_t group = 0;  // this and the next as WeightFormat has them
  DType scale_dtype = DType::kFloat32;

  PackedWeight() = default;
  PackedWeight(const void* where, const WeightFormat& f, int64_t out_features, int64_t in_features)
      : data(where), dtype(f.dtype), out(out_features), in(in_features), group(f.group), scale_dtype(f.scale_dtype) {}
  WeightFormat format() const { return {dtype, group, scale_dtype}; }
};
inline constexpr int64_t kPanelCols = 16;
// A multiple of every group size, and a divisor of the inputs at which a product may be cut.
inline constexpr int64_t kScaleRun = 1024;

// Inputs that one run of packed scales stands for, and the bytes of that run.
inline int64_t packedGroup(const WeightFormat& format) { return format.group > 0 ? format.group : kScaleRun; }
inline int64_t scaleRunBytes(const WeightFormat& format) {
  return kPanelCols * static_cast<int64_t>(dtypeSize(format.scale_dtype));
}
// Inputs in one 32-bit lane of a quantised format.
inline int64_t inputsPerLane(DType dtype) { return dtype == DType::kInt4 ? 8 : 4; }

// Where input i stands in its lane. Of int4 the even inputs fill the lower half and the odd ones the upper half: a lane
// shifted by 0, 4, 8 and 12 has an input pair in the lowest bits of its halves.
constexpr int packedBit(DType dtype, int64_t i) {
  return static_cast<int>(dtype == DType::kInt4 ? i % 2 * 16 + i % 8 / 2 * 4 : i % 4 * 8);
}

// Bytes of the first `in` inputs of a panel, which are all of it or end where a product may be cut (a multiple of the
// group, or of 2); and of the whole packed weight.
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

}  // namespace chorus
