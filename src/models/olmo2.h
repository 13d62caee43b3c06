// OLMo 2: Llama with norms after the blocks instead of before them, and RMS norms of all queries and of all keys of a
// token.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture olmo2Architecture();  // Olmo2ForCausalLM

}  // namespace chorus
