// The adapters of --adapters.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace chorus {

// Subdirectories with an adapter_config.json, by name; none for an empty dir. Throws Error(kNotFound).
std::vector<std::filesystem::path> adapterDirectories(const std::string& dir);

}  // namespace chorus
