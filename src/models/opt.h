// OPT: layer norms before the blocks, or after the sums (350m); learned positions; biases; 350m's embedding is narrower
// than the hidden size.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture optArchitecture();  // OPTForCausalLM

}  // namespace chorus
