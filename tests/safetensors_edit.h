// Safetensors files spoilt on purpose.
#pragma once

#include <filesystem>
#include <functional>

#include "base/json.h"

namespace chorus::test {

// Changes the header in place of the old one; the tensors' bytes stay as they are, true to it or not.
void editHeader(const std::filesystem::path& file, const std::function<void(OrderedJson& header)>& edit);
// Writes the file again without one of its tensors.
void dropTensor(const std::filesystem::path& file, const std::string& name);
void truncateFile(const std::filesystem::path& file, double share);

}  // namespace chorus::test
