// BLOOM: ALiBi, a layer norm after the embedding and before each block, an MLP without a gate, biases.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture bloomArchitecture();  // BloomForCausalLM

}  // namespace chorus
