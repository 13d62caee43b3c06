#include "engine/adapter_memory.h"

#include <algorithm>
#include <utility>

namespace chorus {

DeviceBuffer AdapterMemory::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const DeviceBuffer& kept) {
      return kept.size() >= bytes && kept.size() - bytes <= bytes / 4;
    };
    const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
    if (found != kept_.end()) {
      DeviceBuffer memory = std::move(*found);
      kept_.erase(found);
      return memory;
    }
  }
  return backend_.allocate(bytes);
}

void AdapterMemory::give(DeviceBuffer memory) {
  if (memory.size() == 0) return;
  DeviceBuffer oldest;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  if (kept_.size() == kKept) {
    oldest = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(memory));
}

}  // namespace chorus
