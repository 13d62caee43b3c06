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

std::vector<std::filesystem::path> firstAdapterDirectories(const std::string& dir, int mixed) {
  auto directories = adapterDirectories(dir);
  if (mixed > std::ssize(directories)) {
    fail(ErrorCode::kInvalidArgument, "--mixed {}: --adapters holds {} adapters", mixed, directories.size());
  }
  directories.resize(static_cast<size_t>(mixed));
  return directories;
}

Adapter readAdapterOf(const Engine& engine, const std::filesystem::path& dir) {
  const WeightTable table = engine.architecture().weightTable(engine.config());
  return readAdapter(dir, dir.filename().string(),
                     {engine.config(), table, engine.buildConfig().max_lora_rank, engine.architecture().left_out});
}

}  // namespace chorus
