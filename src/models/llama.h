// Llama and Mistral: pre-norm decoder, grouped-query attention with rotary positions, gated SiLU MLP.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture llamaArchitecture();    // LlamaForCausalLM
Architecture mistralArchitecture();  // MistralForCausalLM, without a sliding window

}  // namespace chorus
