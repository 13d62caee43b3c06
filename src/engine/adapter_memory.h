// Keeps the memory of evicted adapters for adapters that are loaded later. Touching fresh pages may take longer than
// the rest of a load, and the thread that evicts, which is the step's thread, would spend time on freeing memory.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/backend.h"

namespace chorus {

// Thread-safe. The backend must outlive this object and all buffers that it returned.
class AdapterMemory : public std::enable_shared_from_this<AdapterMemory> {
 public:
  explicit AdapterMemory(Backend& backend) : backend_(backend) {}

  // Returns a buffer of at least `bytes` bytes and at most a quarter more, with undefined contents. Throws
  // Error(kExhausted).
  DeviceBuffer take(size_t bytes);
  // Takes a buffer back. The last kKept buffers are kept and older ones are freed.
  void give(DeviceBuffer memory);

  static constexpr size_t kKept = 2;

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::vector<DeviceBuffer> kept_;  // oldest first
};

}  // namespace chorus
