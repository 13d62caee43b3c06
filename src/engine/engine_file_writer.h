// Writes rank files (engine/engine_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_file.h"

namespace chorus {

// Writes a new rank file under a temporary name. The constructor reserves its space on disk, so that writes to the
// mapped file cannot fail. commit() renames it to `path`; the destructor removes a file that was not committed.
class EngineFileWriter {
 public:
  // packer: computes the sizes of linears. Throws Error(kExhausted) if the disk has too little space.
  EngineFileWriter(std::filesystem::path path, std::vector<EngineTensor> tensors, const WeightPacker& packer);
  ~EngineFileWriter();
  EngineFileWriter(const EngineFileWriter&) = delete;
  EngineFileWriter& operator=(const EngineFileWriter&) = delete;

  const std::vector<EngineTensor>& tensors() const { return tensors_; }
  // Writable bytes of tensor i, zero at first. Distinct tensors may be filled from distinct threads.
  std::byte* data(size_t i) { return map_ + tensors_[i].offset; }
  void commit();

 private:
  std::filesystem::path path_;
  std::string temporary_;
  std::vector<EngineTensor> tensors_;
  std::byte* map_ = nullptr;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace chorus
