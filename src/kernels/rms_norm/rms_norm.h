// Root mean square norm with the residual sum before it.
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

// residual += delta + bias, in place, of which either may be absent. Then y = residual / rms(residual) *
// weight, with rms = sqrt(mean(residual^2) + epsilon). residual, delta, y: [rows, cols] float32; weight,
// bias: [cols] float32; rows of a group take its weight instead. y may alias delta or residual. Without y.data only the
// sum is done.
struct RmsNormArgs {
  Matrix residual;
  ConstMatrix delta;
  const float* bias = nullptr;
  const float* weight = nullptr;
  float epsilon = 1e-5f;
  Matrix y;
  std::span<const NormGroup> groups;
};

// Of a row.
inline const float* normWeight(const RmsNormArgs& args, int64_t row) {
  const NormGroup* group = groupOf(args.groups, row);
  return group != nullptr ? group->weight : args.weight;
}

namespace reference {
void rmsNorm(const RmsNormArgs& args);
}

}  // namespace chorus
