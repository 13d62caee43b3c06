#include "server/http/body_memory.h"

#include <utility>

#include "base/free_text.h"

namespace chorus::server {

std::string BodyMemory::take(size_t capacity) {
  std::string body;
  {
    const std::lock_guard lock(mutex_);
    if (kept_.capacity() >= capacity) body.swap(kept_);
  }
  body.reserve(capacity);
  return body;
}

void BodyMemory::give(std::string body, Time now) noexcept {
  body.clear();
  if (body.capacity() > kMost) return;
  const std::lock_guard lock(mutex_);
  if (body.capacity() < kept_.capacity()) return;
  kept_.swap(body);
  since_ = now;
}

void BodyMemory::freeUnused(Time now) noexcept {
  const std::lock_guard lock(mutex_);
  if (now - since_ >= kLongest) freeText(kept_);
}

}  // namespace chorus::server
