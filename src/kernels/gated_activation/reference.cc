#include <cassert>
#include <cmath>

#include "kernels/gated_activation/gated_activation.h"

namespace chorus::reference {
namespace {

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
  }
  assert(false);
  return 0;
}
}  // namespace

void gatedActivation(const GatedActivationArgs& args) {
  const int64_t cols = args.out.cols;
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const float* in = args.fc_gate.data + r * args.fc_gate.stride;
    for (int64_t c = 0; c < cols; ++c) {
      const float fc = args.bias != nullptr ? in[c] + args.bias[c] : in[c];
      const float gate = args.bias != nullptr ? in[cols + c] + args.bias[cols + c] : in[cols + c];
      args.out.data[r * args.out.stride + c] = activate(args.kind, fc) * gate;
    }
  }
}

}  // namespace chorus::reference
