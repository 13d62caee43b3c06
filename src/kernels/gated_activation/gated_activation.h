// The gated MLP's product: out = act(fc + fc_bias) * (gate + gate_bias).
#pragma once

#include "kernels/activation/activation_kind.h"
#include "kernels/tensor.h"

namespace chorus {

// out = act(activated half of fc_gate + its bias) * (other half of fc_gate + its bias).
//   - fc_gate: [rows, 2 * cols] float32. Columns [0, cols) are the half that is activated (TensorRT-LLM's mlp.fc,
//     Hugging Face's gate_proj); columns [cols, 2 * cols) are the other half (mlp.gate, up_proj). If activates_second
//     is set, the halves are in the opposite order.
//   - bias: [2 * cols] float32, or null.
//   - out: [rows, cols]. It may be the first half of fc_gate itself, but must not overlap it in any other way.
struct GatedActivationArgs {
  ConstMatrix fc_gate;
  const float* bias = nullptr;
  ActivationKind kind = ActivationKind::kSilu;
  Matrix out;
  bool activates_second = false;
};

namespace reference {
void gatedActivation(const GatedActivationArgs& args);
}

}  // namespace chorus
