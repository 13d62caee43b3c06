// Falcon: attention and an MLP without a gate that read the same residual, layer norms, rotary positions.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture falconArchitecture();  // FalconForCausalLM, without ALiBi

}  // namespace chorus
