// The files of a PEFT adapter directory, read as one state of both.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "base/file_reader.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"

namespace chorus {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
// The first of them that is there counts.
inline constexpr const char* kPeftWeightFiles[] = {"adapter_model.safetensors", "adapter_model.bin"};

struct PeftFiles {
  std::string config;             // adapter_config.json
  std::string config_source;      // its path, for error lines
  TensorFile weights;             // adapter_model.safetensors, else adapter_model.bin, in memory
  std::vector<FileStamp> stamps;  // of what is there
};

// More than an adapter of the model can take, with every weight in float64 and a rank of max_rank (0: of any): a larger
// file is refused unread.
size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank);

// Weights of more than max_bytes are refused. The directory that `open` opens may be rewritten meanwhile: both files
// are of one state of it (FileReader), and nothing is mapped. Throws Error: those of open, kNotFound, kCorrupt,
// kConflict when it changes all the time, and those of the formats.
PeftFiles readPeftFiles(const OpenDirectory& open, size_t max_bytes);

// The same without the values of adapter_model.safetensors, of which the header alone is read. adapter_model.bin has no
// such header and is read whole.
struct PeftHeaders {
  std::string config;
  std::string config_source;
  std::shared_ptr<const FileContents> weights;  // the file's first bytes, the header at least; or all of it
  std::filesystem::path weights_path;
  size_t weights_bytes = 0;  // size of the file
  std::vector<FileStamp> stamps;

  // Whether the values are missing.
  bool headerOnly() const;
  // SHA-256 of configuration, header and size of the file: equal for adapters that differ in their values alone.
  std::string digest() const;
  // Without values (TensorFile::hasValues) of a safetensors file. Throws Error of the format.
  PeftFiles parse() const;
};
PeftHeaders readPeftHeaders(const OpenDirectory& open, size_t max_bytes);

// When the youngest of the files last changed (FileStamp::changed_ns); 0 when there are none.
int64_t newestPeftChangeNs(const OpenDirectory& open);

// The weights alone.
TensorFile openPeftWeights(const std::filesystem::path& dir);

}  // namespace chorus
