#include "engine/engine_directory.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "checkpoint/staged_directory.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kRankDigests = "rank_digests";

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

std::string rankDigest(std::span<const std::byte> file, std::span<const EngineTensor> tensors) {
  constexpr size_t kBeginning = 4096;
  Sha256 hash;
  hash.update(engineFileHead(tensors));
  for (const EngineTensor& tensor : tensors) {
    hash.update(file.subspan(tensor.offset, std::min<size_t>(tensor.bytes, kBeginning)));
  }
  return hash.hex();
}

RankDigests readRankDigests(const Json& config, int32_t ranks, std::string_view source) {
  const auto found = config.find(kRankDigests);
  if (found == config.end()) return {};
  RankDigests digests;
  if (found->is_array()) {
    for (const Json& digest : *found) digests.push_back(digest.is_string() ? digest.get<std::string>() : "");
  }
  if (std::ssize(digests) != ranks) {
    fail(ErrorCode::kCorrupt, "{}: '{}' must be a list with a digest for each of the {} ranks", source, kRankDigests,
         ranks);
  }
  return digests;
}

void writeEngineConfig(const fs::path& dir, const Json& pretrained_config, const BuildConfig& config,
                       const RankDigests& digests) {
  Json json = {
      {"version", CHORUS_VERSION}, {"pretrained_config", pretrained_config}, {"build_config", config.toJson()}};
  if (!digests.empty()) json[kRankDigests] = digests;
  writeFileAtomically(dir / kConfig, json.dump(2) + "\n");
}

std::optional<std::string> foreignToEngine(const fs::path& dir) {
  bool is_own = isOwnConfig(dir / kConfig);
  auto foreign = firstForeignEntry(dir, [&](const fs::directory_entry& entry) {
    return isRankFile(entry) || (entry.path().filename() == kConfig && entry.is_regular_file());
  });
  if (foreign) return foreign;
  for (const auto& entry : fs::directory_iterator(dir)) is_own = is_own || beginsWithMagic(entry.path());
  if (is_own) return std::nullopt;
  return firstForeignEntry(dir, [](const fs::directory_entry&) { return false; });
}

}  // namespace chorus
