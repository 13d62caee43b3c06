// GPT-2: layer norms, learned positions, an MLP without a gate, linears that are stored transposed.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture gpt2Architecture();  // GPT2LMHeadModel

}  // namespace chorus
