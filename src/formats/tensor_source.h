// The tensors of a Hugging Face directory: safetensors or PyTorch files, one file or shards with an index.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/tensor_file.h"

namespace chorus {

class TensorSource {
 public:
  // Opens the first that is there, in the order of the transformers library: model.safetensors, the shards of
  // model.safetensors.index.json, pytorch_model.bin, the shards of pytorch_model.bin.index.json. Throws Error: none is
  // there (kNotFound), a weight_map that leads out of the directory, a missing shard, a listed tensor that its shard
  // lacks, a shard tensor that is not listed, a tensor in two shards (kCorrupt).
  static TensorSource open(const std::filesystem::path& dir);

  // Sorted.
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when absent. Views live as long as any copy of this object.
  const TensorView* find(std::string_view name) const;
  // The file that holds the tensor, for error lines; the directory when absent.
  std::string fileOf(std::string_view name) const;

 private:
  void addFile(const std::filesystem::path& path);
  void addShards(const std::filesystem::path& index);

  std::filesystem::path dir_;
  std::vector<TensorFile> files_;
  std::unordered_map<std::string, size_t> file_of_;
  std::vector<std::string> names_;
};

}  // namespace chorus
