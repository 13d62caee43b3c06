// Qwen2-MoE and Qwen1.5-MoE.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture qwen2MoeArchitecture();

}  // namespace chorus
