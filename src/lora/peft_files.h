// Reads both files of a PEFT adapter directory in one consistent state.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "base/file_reader.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"

namespace chorus {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
// The first of these files that exists is read.
inline constexpr const char* kPeftWeightFiles[] = {"adapter_model.safetensors", "adapter_model.bin"};

struct PeftFiles {
  std::string config;             // adapter_config.json
  std::string config_source;      // its path, for error lines
  TensorFile weights;             // adapter_model.safetensors, else adapter_model.bin, in memory
  std::vector<FileStamp> stamps;  // stamps of the files that exist
};

// Upper bound, in bytes, of an adapter's weights file for the model: every weight in float64 and rank max_rank (0: any
// rank). A larger file is refused before it is read.
size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank);

// Reads both files from the reader's directory. Weights of more than max_bytes are refused. Nothing is memory-mapped,
// because the files may be rewritten meanwhile; the caller checks that they were not (readUnchanged). Throws Error:
// kNotFound, kCorrupt, and those of the formats.
PeftFiles readPeftFiles(FileReader& files, size_t max_bytes);

// Like PeftFiles, but of the weights only names, types and shapes are read (parseSafetensorsHeader, parseTorchHeader);
// an adapter_model.bin of PyTorch 1.5 or older is read whole.
struct PeftHeaders {
  std::string config;
  std::string config_source;
  std::filesystem::path weights_path;
  size_t weights_bytes = 0;  // size of the file
  // adapter_model.safetensors: the file's first bytes, at least its header. Null for adapter_model.bin.
  std::shared_ptr<const FileContents> header;
  std::optional<TensorFile> parsed;  // adapter_model.bin
  std::vector<FileStamp> stamps;

  // SHA-256 of the configuration, the header and the file size: equal for adapters that differ only in their values.
  // Empty for adapter_model.bin, whose header is not in one place.
  std::string digest() const;
  // The tensors have no values (TensorFile::hasValues). Throws the format's Errors.
  PeftFiles parse() const;
};
PeftHeaders readPeftHeaders(FileReader& files, size_t max_bytes);

// Reads only the weights file.
TensorFile openPeftWeights(const std::filesystem::path& dir);

}  // namespace chorus
