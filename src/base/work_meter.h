// Limits the work that untrusted input may cause by a work budget in bytes, a deadline and a cancel flag.
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

 private:
  void look();
  void setNextLook();

  Limits limits_;
  uint64_t spent_ = 0;
  uint64_t next_look_ = kLookEvery;
  std::atomic<bool> cancelled_{false};
};

}  // namespace chorus
