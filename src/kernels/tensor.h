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

// The weight [out, in] of a linear in its backend's form, which a WeightPacker makes (weight_packer.h).
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
}  // namespace chorus
