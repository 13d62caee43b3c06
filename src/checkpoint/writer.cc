#include "checkpoint/writer.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace chorus {
namespace {

bool isRankFileName(std::string_view name) {
  constexpr std::string_view kPrefix = "rank", kSuffix = ".safetensors";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return false;
  const auto digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A checkpoint has config.json, at least one rankN.safetensors, and nothing else.
std::optional<std::string> foreignToCheckpoint(const std::filesystem::path& dir) {
  constexpr const char* kConfig = "config.json";
  const auto isConfig = [&](const std::filesystem::directory_entry& entry) {
    return entry.path().filename() == kConfig;
  };
  const auto foreign = firstForeignEntry(dir, [&](const std::filesystem::directory_entry& entry) {
    return isConfig(entry) || isRankFileName(entry.path().filename().string());
  });
  if (foreign) return foreign;
  const auto rank = firstForeignEntry(dir, isConfig);
  if (!std::filesystem::exists(dir / kConfig)) return rank;
  return rank ? std::nullopt : std::optional<std::string>(kConfig);
}
}  // namespace

std::string rankFileName(int32_t rank) { return fmt::format("rank{}.safetensors", rank); }

CheckpointWriter::CheckpointWriter(const std::filesystem::path& dir, const ModelConfig& config,
                                   const WeightTable& table)
    : config_(config), directory_(dir, "a checkpoint", foreignToCheckpoint) {
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    tensors_.push_back(rankTensors(table, config, rank));
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const RankTensor& tensor : tensors_.back()) declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    files_.push_back(std::make_unique<SafetensorsWriter>(directory_.path() / rankFileName(rank), declarations));
  }
}

void CheckpointWriter::write(int32_t rank, std::string_view name, uint64_t offset, std::span<const std::byte> bytes) {
  files_[static_cast<size_t>(rank)]->write(name, offset, bytes);
}

void CheckpointWriter::publish() {
  for (const auto& file : files_) file->finish();
  writeFileAtomically(directory_.path() / "config.json", config_.toJson().dump(2) + "\n");
  directory_.publish();
}

}  // namespace chorus
