// Checks that this build can honour an ExecutorConfig.
#pragma once

#include "chorus/executor_config.h"

namespace chorus {

// Throws Error(kUnsupported) naming the first field that asks for something this build does not support, or
// Error(kInvalidArgument) for a value that no build could honour. A field that is meaningless on the CPU of one machine
// must have its default value. A field that costs nothing to honour may have any value.
void checkSupported(const executor::ExecutorConfig& config, executor::ModelType model_type);

}  // namespace chorus
