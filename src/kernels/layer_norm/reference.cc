#include <cmath>

#include "kernels/layer_norm/layer_norm.h"

namespace chorus::reference {

void layerNorm(const LayerNormArgs& args, const StepBatch& batch) {
  const int64_t cols = args.residual.cols;
  const auto count = static_cast<float>(cols);
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
    for (int64_t c = 0; c < cols; ++c) sum += residual[c];
    const float mean = sum / count;
    float squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += (residual[c] - mean) * (residual[c] - mean);
    const float scale = 1.0f / std::sqrt(squares / count + args.epsilon);
    const RowNorm norm = normOfRow(batch.groups[args.groups], r, {args.weight, args.norm_bias});
    for (int64_t c = 0; c < cols; ++c) {
      const float bias = norm.bias != nullptr ? norm.bias[c] : 0.0f;
      args.y.row(r)[c] = (residual[c] - mean) * scale * norm.weight[c] + bias;
    }
  }
}

}  // namespace chorus::reference
