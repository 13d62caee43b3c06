// Cohere's Command models: parallel blocks that share a layer norm without bias, RoPE in adjacent pairs, and scaled
// logits. In Cohere 2 only the layers with a sliding window have RoPE.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture cohereArchitecture();
Architecture cohere2Architecture();

}  // namespace chorus
