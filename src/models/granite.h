// Granite (dense): Llama with multipliers of the embedding, the attention scores, the residual and the logits.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture graniteArchitecture();  // GraniteForCausalLM

}  // namespace chorus
