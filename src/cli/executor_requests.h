// What commands that send requests to an Executor share: the adapters of --lora_dir, and errors of responses.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "chorus/executor.h"

namespace chorus {

// Returns for every directory how requests refer to its adapter: by its id, the index in `dirs`, when the directory is
// a PEFT directory or a NeMo adapter, which is registered now; with the tensors when it holds LoRA tensor files. Throws
// Error that names the directory.
std::vector<executor::LoraConfig> openAdapters(const std::vector<std::string>& dirs, executor::Executor& executor);

// The error of a Response as an Error's code.
ErrorCode errorCodeOf(executor::ResponseErrorCode code);

}  // namespace chorus
