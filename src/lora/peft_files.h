// The files of a PEFT adapter directory, read as one state of both.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"

namespace chorus {

struct PeftFiles {
  std::string config;             // adapter_config.json
  std::string config_source;      // its path, for error lines
  TensorFile weights;             // adapter_model.safetensors, else adapter_model.bin, in memory
  std::vector<FileStamp> stamps;  // of what is there
};

// More than an adapter of the model can take, with every weight in float64 and a rank of max_rank (0: of any): a larger
// file is refused unread. At most the memory that is free.
size_t largestPeftWeights(const ModelConfig& config, const WeightTable& table, int64_t max_rank);

// Weights of more than max_bytes are refused. The directory that `open` opens may be rewritten meanwhile: both files
// are of one state of it (FileReader), and nothing is mapped. Throws Error: those of open, kNotFound, kCorrupt,
// kConflict when it changes all the time, and those of the formats.
PeftFiles readPeftFiles(const OpenDirectory& open, size_t max_bytes);

// When the youngest of the files last changed (FileStamp::changed_ns); 0 when there are none.
int64_t newestPeftChangeNs(const OpenDirectory& open);

// The weights alone.
TensorFile openPeftWeights(const std::filesystem::path& dir);

}  // namespace chorus
