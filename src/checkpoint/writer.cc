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
}  // namespace

std::string rankFileName(int32_t rank) { return fmt::format("rank{}.safetensors", rank); }

bool isCheckpointDirectory(const std::filesystem::path& dir) {
  bool config = false, ranks = false;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json") {
      config = true;
    } else if (isRankFileName(name)) {
      ranks = true;
    } else {
      return false;
    }
  }
  return config && ranks;
}

CheckpointWriter::CheckpointWriter(const std::filesystem::path& dir, const ModelConfig& config,
                                   const WeightTable& table)
    : config_(config), directory_(dir, "a checkpoint", isCheckpointDirectory) {
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
