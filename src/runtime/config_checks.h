// Which ExecutorConfig this build can keep.
#pragma once

#include "chorus/executor_config.h"

namespace chorus {

// Throws Error (kUnsupported) that names the first field which asks for what is not done here, or kInvalidArgument for
// a value that nobody could keep. What has no bearing on one machine's CPU is taken at its default alone; fields that
// cost nothing to keep are taken as they are.
void checkSupported(const executor::ExecutorConfig& config, executor::ModelType model_type, int32_t max_seq_len);

}  // namespace chorus
