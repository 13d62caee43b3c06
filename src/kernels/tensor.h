// Views of device memory that ops take as arguments. A view does not own its memory; a DeviceBuffer does.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/input_format.h"

namespace chorus {

// A row-major matrix in device memory. stride: elements from one row to the next. dtype: float32, except where a
// contract allows the backend's type of activations (Backend::activationType).
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType dtype = DType::kFloat32;

  // Address of an element.
  void* at(int64_t row, int64_t col) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(row * stride + col) * dtypeSize(dtype);
  }
  // A row of a float32 matrix.
  float* row(int64_t r) const {
    assert(dtype == DType::kFloat32);
    return static_cast<float*>(data) + r * stride;
  }
};
struct ConstMatrix {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType dtype = DType::kFloat32;

  ConstMatrix() = default;
  ConstMatrix(const void* where, int64_t num_rows, int64_t num_cols, int64_t elements_between_rows,
              DType type = DType::kFloat32)
      : data(where), rows(num_rows), cols(num_cols), stride(elements_between_rows), dtype(type) {}
  ConstMatrix(const Matrix& m) : ConstMatrix(m.data, m.rows, m.cols, m.stride, m.dtype) {}  // NOLINT
  const void* at(int64_t row, int64_t col) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(row * stride + col) * dtypeSize(dtype);
  }
  const float* row(int64_t r) const {
    assert(dtype == DType::kFloat32);
    return static_cast<const float*>(data) + r * stride;
  }
};

// Storage format of a packed weight. An int8 or int4 weight is an integer times a scale; `group` consecutive inputs of
// one output feature share a scale.
struct WeightFormat {
  DType dtype = DType::kFloat32;
  int64_t group = 0;                    // inputs per scale: 32, 64, 128, or 0: one scale for all inputs of a feature
  DType scale_dtype = DType::kFloat32;  // float32, float16 or bfloat16
  // How inputs are rounded for integer products. It also decides where panels have scales (linear/panel_layout.h).
  InputFormat activations = InputFormat::kInt16;

  WeightFormat() = default;
  WeightFormat(DType d) : dtype(d) {}  // NOLINT: implicit, because a float format has nothing but its dtype
  WeightFormat(DType d, int64_t inputs, DType scales, InputFormat of_inputs = InputFormat::kInt16)
      : dtype(d), group(inputs), scale_dtype(scales), activations(of_inputs) {}
  bool operator==(const WeightFormat&) const = default;
};
inline bool isQuantised(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }

// The weight [out, in] of a linear in its backend's form, which a WeightPacker makes (weight_packer.h).
struct PackedWeight {
  const void* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kFloat32;
  int64_t out = 0;
  int64_t in = 0;
  int64_t group = 0;  // this and the next two as in WeightFormat
  DType scale_dtype = DType::kFloat32;
  InputFormat activations = InputFormat::kInt16;

  PackedWeight() = default;
  PackedWeight(const void* where, const WeightFormat& f, int64_t out_features, int64_t in_features)
      : data(where),
        dtype(f.dtype),
        out(out_features),
        in(in_features),
        group(f.group),
        scale_dtype(f.scale_dtype),
        activations(f.activations) {}
  WeightFormat format() const { return {dtype, group, scale_dtype, activations}; }
};
}  // namespace chorus
