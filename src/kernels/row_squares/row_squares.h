// Sums of squares of rows, for norms over more columns than one rank has.
#pragma once

#include "kernels/tensor.h"

namespace chorus {

// squares[r * stride] = sum over c of (x[r][c] + bias[c])^2
//   - x: [rows, cols] float32. bias: [cols] float32, or null. squares: [rows] float32, device memory.
//   - The order of the sum is that of rms_norm.
struct RowSquaresArgs {
  ConstMatrix x;
  const float* bias = nullptr;
  float* squares = nullptr;
  int64_t stride = 1;
};

namespace reference {
void rowSquares(const RowSquaresArgs& args);
}

}  // namespace chorus
