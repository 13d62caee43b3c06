#include <cassert>
#include <cmath>

#include "kernels/activation/activation.h"

namespace chorus::reference {

float activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1.0f + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    case ActivationKind::kGeluTanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case ActivationKind::kRelu:
      return x > 0 ? x : 0;
    case ActivationKind::kReluSquared:
      return x > 0 ? x * x : 0;
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  assert(false);
  return 0;
}

void activation(const ActivationArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    float* row = args.x.row(r);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      row[c] = activate(args.kind, args.bias != nullptr ? row[c] + args.bias[c] : row[c]);
    }
  }
}

}  // namespace chorus::reference
