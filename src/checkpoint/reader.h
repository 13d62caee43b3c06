// Reads a checkpoint directory, ours or one that TensorRT-LLM's converters wrote: config.json and rankN.safetensors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "formats/safetensors.h"

namespace chorus {

// The tensors of one rank. Each tensor of the weight table is present and has the table's shape; dtypes are those of
// the file. Views stay valid while any copy of this object exists.
class RankWeights {
 public:
  RankWeights(Safetensors file, std::vector<RankTensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  // Tensors in the file order of the weight table, which must outlive this object.
  const std::vector<RankTensor>& tensors() const { return tensors_; }
  // The tensor of this name, or of its older spelling (olderName). nullptr when absent.
  const TensorView* find(std::string_view name) const;
  // Throws Error(kCorrupt) when absent.
  const TensorView& get(std::string_view name) const;
  const Safetensors& file() const { return file_; }

 private:
  Safetensors file_;
  std::vector<RankTensor> tensors_;
};

class CheckpointReader {
 public:
  // Reads config.json and maps every rank's file. Two config fields are set from the files: tie_word_embeddings by
  // whether lm_head.weight exists, and quantization.group_size to 0 when there is one scale per output. Throws Error
  // for a missing or malformed file, kUnsupported for a quantisation that this version does not support.
  static CheckpointReader open(const std::filesystem::path& dir);

  const ModelConfig& config() const { return config_; }
  // Checks the rank's file against the weight table of this config. Throws Error(kCorrupt) that names the tensors which
  // are missing, unexpected (unless a fnmatch pattern in `ignored` matches), or of a wrong shape or dtype.
  RankWeights rank(int32_t rank, const WeightTable& table, std::span<const std::string> ignored = {}) const;

 private:
  ModelConfig config_;
  std::vector<Safetensors> files_;
};

}  // namespace chorus
