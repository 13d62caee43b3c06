// Writes a checkpoint directory: config.json and one rankN.safetensors per rank.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/staged_directory.h"
#include "checkpoint/weight_table.h"
#include "formats/safetensors.h"

namespace chorus {

// Name of a rank's file, e.g. "rank3.safetensors".
std::string rankFileName(int32_t rank);

class CheckpointWriter {
 public:
  // Declares all tensors of all ranks. If `dir` has an earlier checkpoint, it stays until publish(). Throws Error.
  CheckpointWriter(const std::filesystem::path& dir, const ModelConfig& config, const WeightTable& table);

  // The tensors of a rank, in file order.
  const std::vector<RankTensor>& tensors(int32_t rank) const { return tensors_[static_cast<size_t>(rank)]; }
  // Writes elements of the tensor's dtype at a byte offset of the tensor. Thread-safe.
  void write(int32_t rank, std::string_view name, uint64_t offset, std::span<const std::byte> bytes);
  // Checks that all bytes were written and publishes the directory. Call once.
  void publish();

 private:
  ModelConfig config_;
  StagedDirectory directory_;
  std::vector<std::vector<RankTensor>> tensors_;
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
};

}  // namespace chorus
