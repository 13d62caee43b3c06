// The .npy files of a converted adapter (convert/lora_convert.h) as the tensors of a request.
#pragma once

#include <filesystem>

#include "chorus/tensor.h"

namespace chorus {

// Whether a directory holds such files.
bool holdsLoraFiles(const std::filesystem::path& dir);

struct LoraTensors {
  executor::Tensor weights;
  executor::Tensor config;
};
// Reads them; what the tensors say is for the Executor to check. Throws Error that names the file which is missing, no
// .npy file, or of a type that no LoRA tensor has.
LoraTensors readLoraFiles(const std::filesystem::path& dir);

}  // namespace chorus
