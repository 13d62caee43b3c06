// Qwen2 and Qwen2.5, and Qwen1.5, which has the same architecture: Llama with biases on q, k and v.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture qwen2Architecture();  // Qwen2ForCausalLM, without a sliding window

}  // namespace chorus
