#include "base/memory_budget.h"

#include <cassert>

namespace chorus {

MemoryBudget::~MemoryBudget() { assert(used_ == 0); }

bool MemoryBudget::tryTake(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
  }
  if (parent_ == nullptr || parent_->tryTake(bytes)) return true;
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  return false;
}

void MemoryBudget::giveBack(size_t bytes) {
  if (parent_ != nullptr) parent_->giveBack(bytes);
  std::lock_guard lock(mutex_);
  assert(bytes <= used_);
  used_ -= bytes;
}

size_t MemoryBudget::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  if (this == &other) return *this;
  release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool MemoryCharge::resize(size_t bytes) {
  if (budget_ != nullptr) {
    if (bytes > bytes_ && !budget_->tryTake(bytes - bytes_)) return false;
    if (bytes < bytes_) budget_->giveBack(bytes_ - bytes);
  }
  bytes_ = bytes;
  return true;
}

}  // namespace chorus
