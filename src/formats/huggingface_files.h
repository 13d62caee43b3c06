// The tensors of a Hugging Face model directory: one safetensors or PyTorch file, or several with an index.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/tensor_file.h"

namespace chorus {

// The weight_map of an index of shards: tensor name -> file name. Checks that each file lies in the index's directory.
// Throws Error(kCorrupt).
std::map<std::string, std::string> readWeightMap(const std::filesystem::path& index_path);

class HuggingFaceFiles {
 public:
  // Opens the first of these that exists, in the order of the transformers library: model.safetensors, the files of
  // model.safetensors.index.json, pytorch_model.bin, the files of pytorch_model.bin.index.json. Throws Error:
  //   kNotFound  none of them exists, or a file of the index is missing
  //   kCorrupt   the weight_map names a file outside the directory or a tensor that its file lacks, a file has a tensor
  //              that the weight_map does not list, or two files have the same tensor
  static HuggingFaceFiles open(const std::filesystem::path& dir);

  // Names of all tensors, sorted.
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when there is no such tensor. Views stay valid while any copy of this object exists.
  const TensorView* find(std::string_view name) const;
  // The files, in the order in which they were opened.
  const std::vector<TensorFile>& files() const { return files_; }
  // Path of the file that contains the tensor, or of the directory when there is no such tensor; for error messages.
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
