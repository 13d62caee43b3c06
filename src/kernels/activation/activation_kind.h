// The activations that kernels compute.
#pragma once

namespace chorus {

// silu(x) = x / (1 + e^-x); gelu(x) = x (1 + erf(x / sqrt(2))) / 2; kGeluTanh approximates it with tanh.
// kReluSquared is the square of relu.
enum class ActivationKind { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared, kTanh };

namespace reference {
float activate(ActivationKind kind, float x);
}

}  // namespace chorus
