// SmolLM3: Llama's tensors, layers without positions, and sliding windows in some layers.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture smollm3Architecture();

}  // namespace chorus
