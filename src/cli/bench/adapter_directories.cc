#include "cli/bench/adapter_directories.h"

#include <algorithm>

#include "base/error.h"
#include "lora/adapter_files.h"

namespace chorus {

std::vector<std::filesystem::path> adapterDirectories(const std::string& dir) {
  std::vector<std::filesystem::path> found;
  if (dir.empty()) return found;
  if (!std::filesystem::is_directory(dir)) fail(ErrorCode::kNotFound, "--adapters {}: not a directory", dir);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (isAdapter(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace chorus
