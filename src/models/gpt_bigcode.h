// StarCoder and SantaCoder: GPT-2 with one KV head, or with a source that is ordered by head.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture gptBigCodeArchitecture();  // GPTBigCodeForCausalLM

}  // namespace chorus
