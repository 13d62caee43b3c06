// GPT-J: attention and an MLP without a gate side by side after one layer norm, rotary positions of adjacent pairs, an
// output head with a bias.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture gptjArchitecture();  // GPTJForCausalLM

}  // namespace chorus
