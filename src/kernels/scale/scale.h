// Multiplication by a constant, of embeddings and logits.
#pragma once

#include "kernels/tensor.h"

namespace chorus {

// x *= factor. x: [rows, cols] float32.
struct ScaleArgs {
  Matrix x;
  float factor = 1.0f;
};

namespace reference {
void scale(const ScaleArgs& args);
}

}  // namespace chorus
