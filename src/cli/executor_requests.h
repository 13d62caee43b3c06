// Shared by the commands that send requests to an Executor: reads --lora_dir, and turns a response's error into an
// Error.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "chorus/executor.h"

namespace chorus {

// Returns for every directory the LoraConfig with which requests use its adapter. A PEFT or NeMo adapter is registered
// now, and requests have its id, which is the index in `dirs`. If the directory holds LoRA tensor files, requests have
// the tensors. Throws Error that names the directory.
std::vector<executor::LoraConfig> openAdapters(const std::vector<std::string>& dirs, executor::Executor& executor);

// Returns the ErrorCode of a Response's error.
ErrorCode errorCodeOf(executor::ResponseErrorCode code);

}  // namespace chorus
