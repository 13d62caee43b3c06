// GPT-NeoX and Pythia: an MLP without a gate, beside attention with a norm of its own or after it; layer norms; rotary
// positions in a part of each head.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture gptNeoxArchitecture();  // GPTNeoXForCausalLM

}  // namespace chorus
