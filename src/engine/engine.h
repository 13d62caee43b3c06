// A loaded engine directory: config.json (pretrained_config, build_config) and one mapped rank file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/file.h"
#include "checkpoint/config.h"
#include "engine/build_config.h"
#include "engine/engine_directory.h"
#include "engine/engine_file.h"
#include "kernels/tensor.h"
#include "models/architecture.h"

namespace chorus {

// The contents of an engine directory's config.json.
struct EngineConfig {
  ModelConfig model;
  BuildConfig build;
  RankDigests rank_digests;
};
// Reads only config.json. Throws Error if it is not an engine's or has another packing version or backend.
EngineConfig readEngineConfig(const std::filesystem::path& dir);

// Immutable and shared. Weights stay in the mapped file.
class Engine {
 public:
  // Throws Error if `dir` is not an engine directory or has another packing version or backend, or if the rank file is
  // damaged, of another build than config.json, or lacks a tensor of the architecture's weight table.
  static std::shared_ptr<const Engine> load(const std::filesystem::path& dir, int32_t rank = 0);

  const ModelConfig& config() const { return config_; }
  const BuildConfig& buildConfig() const { return build_; }
  // The packer that made the engine's weights; adapters are packed by it too.
  const WeightPacker& packer() const { return weightPacker(build_.backend); }
  const Architecture& architecture() const { return *architecture_; }
  int32_t rank() const { return rank_; }
  // The layers of this rank's pipeline stage.
  LayerRange layers() const {
    return stageLayers(config_.num_hidden_layers, config_.mapping, config_.mapping.ppRank(rank_));
  }
  size_t weightBytes() const { return file_.bytes().size(); }
  // The most bytes of weights that a step with `rows` rows reads: all but the embedding table, and of a layer's experts
  // at most top_k for each row.
  size_t stepBytes(int64_t rows) const;
  // The mapped rank file, which all views below point into.
  std::span<const std::byte> weightFile() const { return file_.bytes(); }
  const std::filesystem::path& path() const { return file_.path(); }

  // linear(), vector() and table() return views of the tensor with this engine name
  // ("transformer.layers.0.attention.qkv") in the mapped file. They throw Error(kCorrupt) if it is missing or has
  // another shape.
  PackedWeight linear(const std::string& name, int64_t out, int64_t in) const;
  const float* vector(const std::string& name, int64_t size) const;
  struct Table {
    const void* data = nullptr;  // row-major [rows, cols]
    DType dtype = DType::kFloat32;
    int64_t rows = 0;
    int64_t cols = 0;
  };
  Table table(const std::string& name, int64_t rows, int64_t cols) const;

 private:
  void checkComplete() const;
  const EngineTensor* find(const std::string& name, EngineTensorKind kind) const;
  const EngineTensor& get(const std::string& name, EngineTensorKind kind, int64_t rows, int64_t cols) const;

  ModelConfig config_;
  BuildConfig build_;
  const Architecture* architecture_ = nullptr;
  int32_t rank_ = 0;
  MappedFile file_;
  std::unordered_map<std::string, EngineTensor> entries_;
};

}  // namespace chorus
