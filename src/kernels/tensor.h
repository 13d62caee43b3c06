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

// The weight of a linear in packed panels: kPanelCols output features each, panel p holding features
// [16p, 16p + 16) for all inputs. Features past `out` and inputs past `in` are zero.
//   float32, float16: element (o, i) of a panel at [i][o % 16]
//   bfloat16:         at [i / 2][o % 16][i % 2], so one 32-bit lane holds an input pair (what AMX and dot
//   products read)
struct PackedWeight {
  const void* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kFloat32;
  int64_t out = 0;
  int64_t in = 0;
};
inline constexpr int64_t kPanelCols = 16;

// Bytes of one panel and of the whole packed weight.
inline int64_t panelBytes(DType dtype, int64_t in) {
  return dtype == DType::kBFloat16 ? (in + 1) / 2 * 64 : in * kPanelCols * static_cast<int64_t>(dtypeSize(dtype));
}
inline int64_t packedBytes(DType dtype, int64_t out, int64_t in) {
  return (out + kPanelCols - 1) / kPanelCols * panelBytes(dtype, in);
}

}  // namespace chorus
