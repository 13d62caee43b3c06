// Falcon: an MLP without a gate, beside attention or after it; layer norms; rotary positions or ALiBi.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture falconArchitecture();  // FalconForCausalLM

}  // namespace chorus
