// Limits on memory that clients and tenants can make the server hold, counted in bytes.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace chorus {

// A limit that many charges share. A budget may have a parent (a client's share of the server's budget): what is taken
// from it is taken from the parent too, or not at all. Thread-safe. The parent outlives the budget, and a budget
// outlives its charges.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit, MemoryBudget* parent = nullptr) : limit_(limit), parent_(parent) {}
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Takes all of it or nothing; false when this budget or its parent lacks the room.
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

// What one object (a body, a queued answer, a parsed tokenizer) has taken of a budget; gives it back when destroyed. A
// charge without a budget counts nothing. Used by one thread at a time.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(MemoryBudget& budget) : budget_(&budget) {}
  ~MemoryCharge() { release(); }
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;

  // Changes what is held to so many bytes. Growing may fail: then false, and what was held stays held.
  bool resize(size_t bytes);
  bool add(size_t bytes) { return resize(bytes_ + bytes); }
  void release() { resize(0); }
  size_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace chorus
