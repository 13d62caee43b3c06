// RMS norm, with the residual sum before it.
#pragma once

#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// First, in place; delta and bias are optional:
//   residual += delta_scale * (delta + bias)
// Then, unless y.data is null:
//   y = residual / rms(residual) * weight,   rms = sqrt(mean(residual^2) + epsilon)
// residual, delta, y: [rows, cols] float32; weight, bias: [cols] float32. Rows of a group use the group's weight
// instead of `weight`; groups have no bias. y may alias delta or residual.
struct RmsNormArgs {
  Matrix residual;
  ConstMatrix delta;
  const float* bias = nullptr;
  float delta_scale = 1.0f;
  const float* weight = nullptr;
  float epsilon = 1e-5f;
  Matrix y;
  GroupList<NormGroup> groups;
};

namespace reference {
void rmsNorm(const RmsNormArgs& args, const StepBatch& batch);
}

}  // namespace chorus
