// Lists the adapters of the --adapters flag.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace chorus {

// Subdirectories that contain an adapter_config.json, sorted by name; empty for an empty `dir`. Throws
// Error(kNotFound).
std::vector<std::filesystem::path> adapterDirectories(const std::string& dir);

}  // namespace chorus
