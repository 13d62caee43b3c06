#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

namespace chorus::reference {

void rmsNorm(const RmsNormArgs& args) {
  const int64_t cols = args.residual.cols;
  for (int64_t r = 0; r < args.residual.rows; ++r) {
    float* residual = args.residual.data + r * args.residual.stride;
    const float* delta = args.delta.data != nullptr ? args.delta.data + r * args.delta.stride : nullptr;
    for (int64_t c = 0; c < cols; ++c) {
      if (delta != nullptr) residual[c] += args.bias != nullptr ? delta[c] + args.bias[c] : delta[c];
      if (delta == nullptr && args.bias != nullptr) residual[c] += args.bias[c];
    }
    if (args.y.data == nullptr) continue;
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += residual[c] * residual[c];
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + args.epsilon);
    const float* weight = normWeight(args, r);
    for (int64_t c = 0; c < cols; ++c) args.y.data[r * args.y.stride + c] = residual[c] * scale * weight[c];
  }
}

}  // namespace chorus::reference
