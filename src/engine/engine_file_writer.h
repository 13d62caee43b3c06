// Writes rank files (engine/engine_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_file.h"

namespace chorus {

// Lays a new rank file out, reserves its space on disk at once (so that filling the map cannot fail), and renames it
// into place on commit. Without commit the temporary is removed.
class EngineFileWriter {
 public:
  // Throws Error(kExhausted) when the disk cannot take it.
  EngineFileWriter(std::filesystem::path path, std::vector<EngineTensor> tensors);
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
