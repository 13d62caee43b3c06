// A limit on the work that untrusted input may cause: bytes of work, a deadline and a cancel flag, checked in one
// place.
#pragma once

#include <atomic>
#include <chrono>
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

// Counts the work of one request, one file or one rendering. Whoever loops over untrusted bytes charges the meter with
// the bytes that it reads, writes or compares, before or while it does so. One byte of work is what a plain pass over a
// text costs for a byte, about a nanosecond; dearer operations charge a multiple of it (one step of a backtracking
// regular expression charges kRegexStep, one created object kObject).
//
// Used by one thread at a time; cancel() alone may be called by others.
class WorkMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kObject = 64;
  static constexpr uint64_t kRegexStep = 8;
  // The clock and the cancel flag are looked at once in this many bytes of work.
  static constexpr uint64_t kLookEvery = uint64_t{1} << 16;

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
  // Any thread: the next charges throw, at the latest after kLookEvery bytes.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return limits_; }

 private:
  void look();
  void setNextLook();

  Limits limits_;
  uint64_t spent_ = 0;
  uint64_t next_look_ = kLookEvery;
  std::atomic<bool> cancelled_{false};
};

}  // namespace chorus
