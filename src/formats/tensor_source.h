// The tensors of a Hugging Face directory, whether they stand in one safetensors file or in shards with an index.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/safetensors.h"

namespace chorus {

class TensorSource {
 public:
  // Opens DIR/STEM.safetensors, else the shards that DIR/STEM.safetensors.index.json lists. Throws Error: neither is
  // there (kNotFound, naming a PyTorch file that stands in its place), a weight_map that leads out of the directory,
  // a missing shard, a listed tensor that its shard lacks, a shard tensor that is not listed (kCorrupt).
  static TensorSource open(const std::filesystem::path& dir, std::string_view stem = "model");

  // Sorted.
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when absent. Views live as long as any copy of this object.
  const TensorView* find(std::string_view name) const;
  // The file that holds the tensor, for error lines; the directory when absent.
  std::string fileOf(std::string_view name) const;

 private:
  void addFile(const std::filesystem::path& path);

  std::filesystem::path dir_;
  std::vector<Safetensors> files_;
  std::unordered_map<std::string, size_t> file_of_;
  std::vector<std::string> names_;
};

}  // namespace chorus
