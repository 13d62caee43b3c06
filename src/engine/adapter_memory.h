// The memory of adapters that were evicted, kept for those that take their place: touching fresh pages may cost more
// than all the rest of a load, and giving them back takes time of whoever evicts, the step's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/backend.h"

namespace chorus {

// Thread-safe. The backend must outlive it and all that it gave.
class AdapterMemory : public std::enable_shared_from_this<AdapterMemory> {
 public:
  explicit AdapterMemory(Backend& backend) : backend_(backend) {}

  // At least so many bytes, and at most a quarter more; what is in them is undefined. Throws Error(kExhausted).
  DeviceBuffer take(size_t bytes);
  // The last kKept are kept, others go back to the system.
  void give(DeviceBuffer memory);

  static constexpr size_t kKept = 2;

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::vector<DeviceBuffer> kept_;  // the oldest first
};

}  // namespace chorus
