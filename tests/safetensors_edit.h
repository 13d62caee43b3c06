// Damages safetensors files on purpose.
#pragma once

#include <filesystem>
#include <functional>

#include "base/json.h"

namespace chorus::test {

// Replaces the header by an edited one. The tensors' bytes stay as they are, even if the header does not fit them.
void editHeader(const std::filesystem::path& file, const std::function<void(OrderedJson& header)>& edit);
// Rewrites the file without one of its tensors.
void dropTensor(const std::filesystem::path& file, const std::string& name);
void truncateFile(const std::filesystem::path& file, double share);

}  // namespace chorus::test
