// The gated MLP's product: out = act(fc + fc_bias) * (gate + gate_bias).
#pragma once

#include "kernels/tensor.h"

namespace chorus {

enum class ActivationKind { kSilu, kGelu, kGeluTanh, kRelu };

// fc_gate: [rows, 2 * cols] float32, columns [0, cols) the activated half (TensorRT-LLM's mlp.fc, Hugging
// Face's gate_proj), columns [cols, 2 cols) the other (mlp.gate, up_proj). bias: [2 * cols] float32 or null.
// out: [rows, cols]; it may be the first half of fc_gate itself, never another overlap.
struct GatedActivationArgs {
  ConstMatrix fc_gate;
  const float* bias = nullptr;
  ActivationKind kind = ActivationKind::kSilu;
  Matrix out;
};

namespace reference {
void gatedActivation(const GatedActivationArgs& args);
}

}  // namespace chorus
