// Reads both files of an adapter directory in one consistent state.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/file_reader.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"

namespace chorus {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";

// The file with the weights of an adapter directory: the first one that exists of PEFT's adapter_model.safetensors and
// adapter_model.bin, mlx-lm's adapters.safetensors, and torchtune's adapter_model.pt and adapter_N.pt, of which the
// highest N counts. Empty if there is none. Throws the Errors of Directory::names().
std::string adapterWeightsFile(const Directory& directory);

// The name with the highest N, of those that are the prefix, N and the suffix. Empty if there is none.
std::string highestNumbered(std::span<const std::string> names, std::string_view prefix, std::string_view suffix);

struct PeftFiles {
  std::string config;         // adapter_config.json
  std::string config_source;  // its path, for error lines
  TensorFile weights;         // of adapterWeightsFile(), in memory
};

// Upper bound, in bytes, of an adapter's weights file for the model: every weight in float64 and rank max_rank (0: any
// rank). A larger file is refused before it is read.
size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank);
// Upper bound, in bytes, of a weights file that holds only the matrices A and B of LoRA. max_rank: see above.
size_t largestLowRankWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank);

// Reads both files from the reader's directory. Weights of more than max_bytes are refused. Nothing is memory-mapped,
// because the files may be rewritten meanwhile; the caller checks that they were not (readUnchanged). Throws Error:
// kNotFound, kCorrupt, and those of the formats.
PeftFiles readPeftFiles(FileReader& files, size_t max_bytes);

// Like PeftFiles, but of the weights only names, types and shapes are read (parseSafetensorsHeader, parseTorchHeader);
// a file of PyTorch 1.5 or older is read whole.
struct PeftHeaders {
  std::string config;
  std::string config_source;
  std::filesystem::path weights_path;
  size_t weights_bytes = 0;  // size of the file
  // A safetensors file's first bytes, at least its header. Null for a PyTorch file.
  std::shared_ptr<const FileContents> header;
  std::optional<TensorFile> parsed;  // a PyTorch file

  // SHA-256 of the configuration, the header and the file size: equal for adapters that differ only in their values.
  // Empty for a PyTorch file, whose header is not in one place. throttle: is charged for the hashed bytes.
  std::string digest(BackgroundThrottle* throttle = nullptr) const;
  // The tensors have no values (TensorFile::hasValues). Throws the format's Errors.
  PeftFiles parse() const;
  // Most bytes that the adapter's reader allocates beside the file. Throws the format's Errors.
  uint64_t copiedBytes() const;
};
PeftHeaders readPeftHeaders(FileReader& files, size_t max_bytes);

// Reads only the weights file.
TensorFile openPeftWeights(const std::filesystem::path& dir);

}  // namespace chorus
