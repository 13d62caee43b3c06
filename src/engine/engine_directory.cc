#include "engine/engine_directory.h"

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/staged_directory.h"
#include "engine/engine_file.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";

bool isRankFile(const fs::directory_entry& entry) {
  constexpr std::string_view kPrefix = "rank", kSuffix = ".engine";
  const std::string name = entry.path().filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size()) {
    return false;
  }
  const auto digits = std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  const bool is_number = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  // A link of linkEngine() may outlive the file.
  return is_number && (entry.is_regular_file() || entry.is_symlink());
}

bool isOwnConfig(const fs::path& file) {
  try {
    const Json config = readJsonFile(file);
    return config.at("pretrained_config").is_object() && config.at("build_config").contains("packing_version");
  } catch (const std::exception&) {
    return false;
  }
}

bool beginsWithMagic(const fs::path& file) {
  std::string begin(kEngineFileMagic.size(), '\0');
  std::ifstream(file, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == kEngineFileMagic;
}
}  // namespace

std::optional<std::string> foreignToEngine(const fs::path& dir) {
  bool is_own = isOwnConfig(dir / kConfig);
  const auto foreign = firstForeignEntry(dir, [&](const fs::directory_entry& entry) {
    return isRankFile(entry) || (entry.path().filename() == kConfig && entry.is_regular_file());
  });
  if (foreign) return foreign;
  for (const auto& entry : fs::directory_iterator(dir)) is_own = is_own || beginsWithMagic(entry.path());
  if (is_own) return std::nullopt;
  return firstForeignEntry(dir, [](const fs::directory_entry&) { return false; });
}

}  // namespace chorus
