// The values of --lora_modules, in the two forms that vLLM takes.
#pragma once

#include <string>

namespace chorus {

// Returns NAME=PATH for a value that is NAME=PATH or a JSON object {"name": NAME, "path": PATH}, which may also have a
// base_model_name. Throws Error(kInvalidArgument) that does not name the flag.
std::string namedAdapterPath(const std::string& value);

}  // namespace chorus
