// Phi-3 and Phi-4: Llama with q, k and v in one source tensor, gate and up in another, RoPE on part of a head, and
// longrope.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture phi3Architecture();

}  // namespace chorus
