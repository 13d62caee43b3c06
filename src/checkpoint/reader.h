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

// The tensors of one rank, each present with the shape that the table asks for, their dtypes those of the file. Views
// live as long as any copy of this object.
class RankWeights {
 public:
  RankWeights(Safetensors file, std::vector<RankTensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  // In file order of the weight table, which must outlive this object.
  const std::vector<RankTensor>& tensors() const { return tensors_; }
  // nullptr when absent.
  const TensorView* find(std::string_view name) const { return file_.find(name); }
  // Throws Error(kCorrupt) when absent.
  const TensorView& get(std::string_view name) const;

 private:
  Safetensors file_;
  std::vector<RankTensor> tensors_;
};

class CheckpointReader {
 public:
  // Reads config.json and maps every rank's file. A checkpoint without lm_head.weight whose embedding can serve is
  // read as tied, one with it as untied; groups of quantised weights are those of the scales' shape. Throws Error: a
  // missing file, a malformed one, a quantisation that this version does not have (kUnsupported).
  static CheckpointReader open(const std::filesystem::path& dir);

  const ModelConfig& config() const { return config_; }
  // Checks the rank's file against the table of this config. Throws Error(kCorrupt) that names the tensors which are
  // missing, not expected (unless one of the fnmatch patterns `ignored` takes them), or of another shape or dtype.
  RankWeights rank(int32_t rank, const WeightTable& table, std::span<const std::string> ignored = {}) const;

 private:
  ModelConfig config_;
  std::vector<Safetensors> files_;
};

}  // namespace chorus
