#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

namespace chorus::reference {

void rmsNorm(const RmsNormArgs& args, const StepBatch& batch) {
  const int64_t cols = args.residual.cols;
  for (int64_t r = 0; r < args.residual.rows; ++r) {
    float* residual = args.residual.row(r);
    const float* delta = args.delta.data != nullptr ? args.delta.row(r) : nullptr;
    for (int64_t c = 0; c < cols; ++c) {
      if (delta == nullptr && args.bias == nullptr) break;
      const float bias = args.bias != nullptr ? args.bias[c] : 0.0f;
      residual[c] += args.delta_scale * (delta == nullptr ? bias : args.bias == nullptr ? delta[c] : delta[c] + bias);
    }
    if (args.y.data == nullptr) continue;
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += residual[c] * residual[c];
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + args.epsilon);
    const float* weight = normOfRow(batch.groups[args.groups], r, {args.weight, nullptr}).weight;
    for (int64_t c = 0; c < cols; ++c) args.y.row(r)[c] = residual[c] * scale * weight[c];
  }
}

}  // namespace chorus::reference
