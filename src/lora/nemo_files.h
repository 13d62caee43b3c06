// Reads a NeMo adapter's archive: one .nemo file, a tar archive that may be packed with gzip. It holds
// model_config.yaml, and the checkpoint of each rank that trained the adapter. Nothing is written to a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_reader.h"
#include "base/json.h"
#include "formats/tensor_file.h"

namespace chorus {

inline constexpr const char* kNemoExtension = ".nemo";

struct NemoFiles {
  std::string source;         // path of the archive, for error lines
  std::string config_source;  // path of model_config.yaml in the archive, for error lines
  Json config;                // model_config.yaml
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  std::vector<TensorFile> shards;      // of rank (tp_rank, pp_rank): pp_rank * tp_size + tp_rank
  std::span<const std::byte> bytes;    // the archive as it is on disk; empty if only headers were read
  uint64_t load_bytes = 0;             // most bytes of memory that reading and converting the archive takes
  std::shared_ptr<const void> memory;  // owner of what the shards' tensors and `bytes` point into

  // False when only names, types and shapes of the tensors were read.
  bool hasValues() const { return !bytes.empty(); }
};

// Reads the archive `name` of the reader's directory. An archive of more than max_bytes bytes, packed or unpacked, is
// refused, and, if the reader reserves memory, so is one that unpacks to more than its gzip trailer states. Throws the
// Errors of FileReader and of the formats (tar_archive.h, gunzip.h, nemo_layout.h, torch_file.h).
NemoFiles readNemoFiles(FileReader& files, const std::string& name, size_t max_bytes);
// Like readNemoFiles(), but reads only the headers of the archive's members, the config and the headers of the
// checkpoints. An archive packed with gzip is read whole.
NemoFiles readNemoHeaders(FileReader& files, const std::string& name, size_t max_bytes);
// Like readNemoFiles(), but reads an archive in memory, which `memory` owns. throttle: is charged for unpacked bytes;
// may be null.
NemoFiles parseNemoFiles(std::span<const std::byte> bytes, const std::string& source, size_t max_bytes,
                         std::shared_ptr<const void> memory, BackgroundThrottle* throttle = nullptr);

}  // namespace chorus
