// Keeps the memory of files for files that are read later: touching new pages takes as long as reading a file.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/aligned_buffer.h"

namespace chorus {

// Thread-safe.
class FileMemory {
 public:
  // Memory of at least `size` bytes with undefined contents.
  AlignedBuffer take(size_t size);
  // Takes back memory that take() returned. Keeps it if it is between kLeast and kMost bytes; only the kKept largest
  // buffers are kept.
  void give(AlignedBuffer memory) noexcept;

  static constexpr size_t kLeast = size_t{1} << 20;  // smaller memory costs little to touch
  static constexpr size_t kMost = size_t{64} << 20;  // larger memory is needed too rarely
  static constexpr size_t kKept = 2;

  FileMemory() { kept_.reserve(kKept + 1); }

 private:
  std::mutex mutex_;
  std::vector<AlignedBuffer> kept_;  // ascending by size
};

}  // namespace chorus
