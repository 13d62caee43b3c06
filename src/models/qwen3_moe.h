// Qwen3-MoE.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture qwen3MoeArchitecture();

}  // namespace chorus
