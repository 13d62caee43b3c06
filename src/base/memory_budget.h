// Limits, in bytes, on memory that clients and tenants can make the server hold.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace chorus {

// A limit that many charges share. A budget may have a parent (a client's budget within the server's): bytes are taken
// from both or from neither. Thread-safe. The parent must outlive the budget, and a budget must outlive its charges.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit, MemoryBudget* parent = nullptr) : limit_(limit), parent_(parent) {}
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Takes all of `bytes` or nothing; returns false when this budget or an ancestor has too little left.
  bool tryTake(size_t bytes);
  void giveBack(size_t bytes);
  size_t used() const;
  size_t limit() const { return limit_; }
  MemoryBudget* parent() const { return parent_; }

 private:
  const size_t limit_;
  MemoryBudget* const parent_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
};

// The bytes that one object (a request body, a queued answer, a parsed tokenizer) has taken from a budget; the
// destructor returns them. A charge without a budget has no limit. Not thread-safe.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(MemoryBudget& budget) : budget_(&budget) {}
  ~MemoryCharge() { release(); }
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;

  // Sets the charge to `bytes`. Returns false, and leaves the charge unchanged, when the budget has too little left.
  bool resize(size_t bytes);
  bool add(size_t bytes) { return resize(bytes_ + bytes); }
  void release() { resize(0); }
  size_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace chorus
