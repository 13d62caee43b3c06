#include "base/file_memory.h"

#include <algorithm>
#include <utility>

namespace chorus {

AlignedBuffer FileMemory::take(size_t size) {
  if (size >= kLeast) {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.size() >= size; });
    if (fits != kept_.end()) {
      AlignedBuffer taken = std::move(*fits);
      kept_.erase(fits);
      return taken;
    }
  }
  return AlignedBuffer(size, AlignedBuffer::Pages::kSmall);
}

void FileMemory::give(AlignedBuffer memory) noexcept {
  if (memory.size() < kLeast || memory.size() > kMost) return;
  AlignedBuffer dropped;  // freed after the lock
  const std::lock_guard lock(mutex_);
  const auto place =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.size() > memory.size(); });
  kept_.insert(place, std::move(memory));  // allocates nothing: the constructor reserved the room
  if (kept_.size() <= kKept) return;
  dropped = std::move(kept_.front());
  kept_.erase(kept_.begin());
}

}  // namespace chorus
