// Qwen3: Llama with an RMS norm of each query and key head.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture qwen3Architecture();  // Qwen3ForCausalLM, without a sliding window

}  // namespace chorus
