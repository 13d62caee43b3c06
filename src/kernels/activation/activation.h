// The activation of an MLP without a gate, with the bias of its input projection.
#pragma once

#include "kernels/activation/activation_kind.h"
#include "kernels/tensor.h"

namespace chorus {

// x = act(x + bias), in place.
//   - x: [rows, cols] float32. bias: [cols] float32, or null.
struct ActivationArgs {
  Matrix x;
  const float* bias = nullptr;
  ActivationKind kind = ActivationKind::kSilu;
};

namespace reference {
void activation(const ActivationArgs& args);
}

}  // namespace chorus
