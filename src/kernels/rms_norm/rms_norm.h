// Root mean square norm with the residual sum before it.
#pragma once

#include "kernels/tensor.h"

namespace chorus {

// residual += delta + bias, in place, of which either may be absent. Then y = residual / rms(residual) *
// weight, with rms = sqrt(mean(residual^2) + epsilon). residual, delta, y: [rows, cols] float32; weight,
// bias: [cols] float32. y may alias delta or residual. Without y.data only the sum is done.
struct RmsNormArgs {
  Matrix residual;
  ConstMatrix delta;
  const float* bias = nullptr;
  const float* weight = nullptr;
  float epsilon = 1e-5f;
  Matrix y;
};

namespace reference {
void rmsNorm(const RmsNormArgs& args);
}

}  // namespace chorus
