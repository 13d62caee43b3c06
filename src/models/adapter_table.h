// The adapters that one rank has ready.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "models/adapter_id.h"
#include "models/adapter_parts.h"

namespace chorus {

// Thread-safe: adapters are added and dropped while steps run.
class AdapterTable {
 public:
  void add(AdapterId id, std::shared_ptr<const AdapterParts> parts) {
    const std::lock_guard lock(mutex_);
    parts_[id] = std::move(parts);
  }
  // Does nothing if the rank has no adapter of this id.
  void drop(AdapterId id) noexcept {
    std::shared_ptr<const AdapterParts> dropped;  // freed after the lock
    const std::lock_guard lock(mutex_);
    const auto found = parts_.find(id);
    if (found == parts_.end()) return;
    dropped = std::move(found->second);
    parts_.erase(found);
  }
  // Throws Error(kInternal) if the rank has no adapter of this id.
  std::shared_ptr<const AdapterParts> at(AdapterId id) const {
    const std::lock_guard lock(mutex_);
    const auto found = parts_.find(id);
    if (found == parts_.end()) fail(ErrorCode::kInternal, "a rank has no adapter {}", static_cast<uint64_t>(id));
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<AdapterId, std::shared_ptr<const AdapterParts>> parts_;
};

}  // namespace chorus
