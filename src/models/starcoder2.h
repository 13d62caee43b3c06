// StarCoder 2: grouped-query attention with rotary positions and windows, layer norms, an MLP without a gate.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture starcoder2Architecture();  // Starcoder2ForCausalLM

}  // namespace chorus
