// trtllm-build's flags that change nothing on this backend: they are accepted and recorded, or refused by name.
#pragma once

#include <span>

#include "cli/foreign_flags.h"

namespace chorus {

// An accepted flag is stored in the engine's configuration, under build_config.recorded.
std::span<const ForeignFlag> buildFlags();

}  // namespace chorus
