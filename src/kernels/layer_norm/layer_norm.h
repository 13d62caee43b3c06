// Layer norm, with the residual sum before it.
#pragma once

#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// First, in place; delta and bias are optional:
//   residual += delta_scale * (delta + bias)
// Then, unless y.data is null:
//   y = (residual - mean) / deviation * weight + norm_bias,   deviation = sqrt(mean((residual - mean)^2) + epsilon)
// residual, delta, y: [rows, cols] float32; weight, bias, norm_bias: [cols] float32; norm_bias may be null. Rows of a
// group use the group's weight and bias instead of weight and norm_bias. y may alias delta or residual.
struct LayerNormArgs {
  Matrix residual;
  ConstMatrix delta;
  const float* bias = nullptr;
  float delta_scale = 1.0f;
  const float* weight = nullptr;
  const float* norm_bias = nullptr;
  float epsilon = 1e-5f;
  Matrix y;
  GroupList<NormGroup> groups;
};

namespace reference {
void layerNorm(const LayerNormArgs& args, const StepBatch& batch);
}

}  // namespace chorus
