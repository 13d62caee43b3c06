// Phi-3 and Phi-4: Llama with q, k and v in one source tensor, gate and up in another, and RoPE on part of a head.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture phi3Architecture();  // Phi3ForCausalLM, without a sliding window and without longrope

}  // namespace chorus
