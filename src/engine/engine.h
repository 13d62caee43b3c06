// An engine directory, loaded: config.json (pretrained_config, build_config) and one mapped rank file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/file.h"
#include "checkpoint/config.h"
#include "engine/build_config.h"
#include "kernels/tensor.h"
#include "models/architecture.h"

namespace chorus {

// Immutable and shared. Weights stay in the mapped file.
class Engine {
 public:
  // Throws Error: not an engine directory, another packing version or backend, a truncated or lying rank file.
  static std::shared_ptr<const Engine> load(const std::filesystem::path& dir, int32_t rank = 0);

  const ModelConfig& config() const { return config_; }
  const BuildConfig& buildConfig() const { return build_; }
  const Architecture& architecture() const { return *architecture_; }
  int32_t rank() const { return rank_; }
  size_t weightBytes() const { return file_.bytes().size(); }

  // Packed linear by its engine name ("transformer.layers.0.attention.qkv"); throws Error(kCorrupt) when absent.
  PackedWeight linear(const std::string& name) const;
  // float32 vector (norm weight or bias), nullptr when absent.
  const float* vector(const std::string& name, int64_t size) const;
  // Row-major embedding table.
  struct Table {
    const void* data = nullptr;
    DType dtype = DType::kFloat32;
    int64_t rows = 0;
    int64_t cols = 0;
  };
  Table table(const std::string& name) const;

 private:
  struct Entry {
    std::string kind;
    DType dtype;
    int64_t rows, cols;
    const std::byte* data;
  };
  const Entry& entry(const std::string& name, std::string_view kind) const;

  ModelConfig config_;
  BuildConfig build_;
  const Architecture* architecture_ = nullptr;
  int32_t rank_ = 0;
  MappedFile file_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace chorus
