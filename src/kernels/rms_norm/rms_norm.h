// RMS norm, with the residual sum before it.
#pragma once

#include <span>

#include "kernels/row_groups.h"
#include "kernels/tensor.h"

namespace chorus {

// Rows with a norm weight of their own, [cols] float32. Groups of one call are disjoint.
struct NormGroup {
  std::span<const RowRange> ranges;  // ascending
  const float* weight = nullptr;
};

// First, in place; delta and bias are optional:
//   residual += delta + bias
// Then, unless y.data is null:
//   y = residual / rms(residual) * weight,   rms = sqrt(mean(residual^2) + epsilon)
// residual, delta, y: [rows, cols] float32; weight, bias: [cols] float32. Rows of a group use the group's weight
// instead of `weight`. y may alias delta or residual.
struct RmsNormArgs {
  Matrix residual;
  ConstMatrix delta;
  const float* bias = nullptr;
  const float* weight = nullptr;
  float epsilon = 1e-5f;
  Matrix y;
  std::span<const NormGroup> groups;
};

// Norm weight of one row: its group's, or else the base's.
inline const float* normWeight(const RmsNormArgs& args, int64_t row) {
  const NormGroup* group = groupOf(args.groups, row);
  return group != nullptr ? group->weight : args.weight;
}

namespace reference {
void rmsNorm(const RmsNormArgs& args);
}

}  // namespace chorus
