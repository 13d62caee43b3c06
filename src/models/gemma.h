// Gemma 1, 2 and the text models of Gemma 3: scaled embeddings, GELU in a gated MLP, norms that multiply by one plus
// their weight. From Gemma 2 on there are norms before and after each block, and windows in some layers. Gemma 2 has
// soft caps of scores and logits; Gemma 3 has norms of query and key heads, and another RoPE base in layers with a
// window.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture gemmaArchitecture();   // GemmaForCausalLM
Architecture gemma2Architecture();  // Gemma2ForCausalLM
Architecture gemma3Architecture();  // Gemma3ForCausalLM

}  // namespace chorus
