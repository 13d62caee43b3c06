// Limits the work that untrusted input may cause by a work budget in bytes, a deadline and a cancel flag, and accounts
// for the memory that it holds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace chorus {

// Thrown by WorkMeter. The code is kInvalidArgument for kWork (the input must change) and kExhausted otherwise.
class WorkStopped : public Error {
 public:
  enum class Reason { kWork, kDeadline, kCancelled };
  WorkStopped(Reason reason, ErrorCode code, std::string_view message) : Error(code, message), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

// Grants the memory that the work of a meter holds while it runs, for example from the budget of a client.
class WorkMemory {
 public:
  virtual ~WorkMemory() = default;
  // Called before the work's total exceeds what was granted so far. bytes: the new total. Throws if it is not granted.
  virtual void grant(size_t bytes) = 0;
};

// Counts the work of one request, one file or one template rendering. Code that loops over untrusted bytes charges the
// meter with the bytes that it reads, writes or compares, before or while it does so. One byte of work is the cost of
// one byte in a plain pass over a text, about a nanosecond; more expensive operations charge a multiple of it (one step
// of a backtracking regular expression charges kRegexStep, one created object kObject).
//
// Not thread-safe, except for cancel() and cancelled().
class WorkMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kObject = 64;
  static constexpr uint64_t kRegexStep = 8;
  // The clock and the cancel flag are checked once per this many bytes of work.
  static constexpr uint64_t kLookEvery = uint64_t{1} << 16;
  // Memory that every piece of work may hold without a grant, and the unit of grants.
  static constexpr size_t kFreeMemory = size_t{1} << 20;

  struct Limits {
    uint64_t work = kUnlimited;  // bytes
    Clock::time_point deadline = Clock::time_point::max();
  };

  // Without limits: for trusted input on the command line, and for tests.
  WorkMeter() = default;
  explicit WorkMeter(const Limits& limits) : limits_(limits) { setNextLook(); }
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;

  // Throws WorkStopped when the limit is exceeded, the deadline has passed or cancel() was called.
  void charge(uint64_t bytes) {
    spent_ += bytes < kUnlimited - spent_ ? bytes : kUnlimited - spent_;
    if (spent_ >= next_look_) look();
  }
  // Bytes of work charged so far.
  uint64_t spent() const { return spent_; }
  // Bytes of work that may still be charged.
  uint64_t left() const { return limits_.work - (spent_ < limits_.work ? spent_ : limits_.work); }
  // Makes charge() throw after at most kLookEvery further bytes of work. Thread-safe.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return limits_; }

  // Sets who grants memory; null: nobody, and every hold() succeeds. `memory` must outlive its use here. Must be called
  // while the work holds no memory.
  void setMemory(WorkMemory* memory);
  // Counts memory that the work is about to take: stacks, tables, texts between two stages, values of a template.
  // Throws what WorkMemory::grant() throws, and then counts nothing.
  void hold(size_t bytes) {
    if (bytes > granted_ - held_) growGrant(bytes);
    held_ += bytes;
  }
  // Never fails. What was granted stays granted, because the next stage will need it again.
  void giveBack(size_t bytes) { held_ -= bytes; }
  size_t held() const { return held_; }

 private:
  void look();
  void growGrant(size_t bytes);
  void setNextLook();

  Limits limits_;
  uint64_t spent_ = 0;
  uint64_t next_look_ = kLookEvery;
  WorkMemory* memory_ = nullptr;
  size_t held_ = 0;
  size_t granted_ = std::numeric_limits<size_t>::max();
  std::atomic<bool> cancelled_{false};
};

}  // namespace chorus
