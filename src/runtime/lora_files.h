// Loads the .npy files of a converted adapter (convert/lora_convert.h) as tensors of a request.
#pragma once

#include <filesystem>

#include "chorus/tensor.h"

namespace chorus {

// Whether the directory has at least one of these files.
bool holdsLoraFiles(const std::filesystem::path& dir);

struct LoraTensors {
  executor::Tensor weights;
  executor::Tensor config;
};
// Reads both files without checking the tensors' values, which the Executor does. Throws Error that names the file if
// it is missing, is not a .npy file, or has a data type that no LoRA tensor has.
LoraTensors readLoraFiles(const std::filesystem::path& dir);

}  // namespace chorus
