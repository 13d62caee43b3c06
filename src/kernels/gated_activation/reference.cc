#include "kernels/gated_activation/gated_activation.h"

namespace chorus::reference {
void gatedActivation(const GatedActivationArgs& args) {
  const int64_t cols = args.out.cols;
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const float* in = args.fc_gate.row(r);
    for (int64_t c = 0; c < cols; ++c) {
      const float fc = args.bias != nullptr ? in[c] + args.bias[c] : in[c];
      const float gate = args.bias != nullptr ? in[cols + c] + args.bias[cols + c] : in[cols + c];
      const float product = args.activates_second ? activate(args.kind, gate) * fc : activate(args.kind, fc) * gate;
      args.out.row(r)[c] = product;
    }
  }
}

}  // namespace chorus::reference
