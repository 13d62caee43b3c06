// A limit on an amount per minute. Pure: the time is an argument.
#pragma once

#include <chrono>
#include <cstdint>

namespace chorus::server {

// Holds at most `per_minute` units, and gains per_minute / 60 of them each second. Starts full. All arithmetic is
// exact: fractions of a unit and of a microsecond are kept until they add up. Not thread-safe. Times must not decrease;
// a time before the last one counts as the last one.
class TokenBucket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kMaxPerMinute = 1'000'000'000;

  // per_minute: 1 to kMaxPerMinute.
  TokenBucket(int64_t per_minute, Time now) : per_minute_(per_minute), level_(per_minute), last_(now) {}

  int64_t perMinute() const { return per_minute_; }
  // Whole units that are left; negative after charges that exceeded them.
  int64_t left(Time now);
  // Takes units, whether they are left or not. A negative amount gives units back.
  void charge(int64_t units, Time now);
  // Changes the limit. What was used before stays used.
  void setPerMinute(int64_t per_minute, Time now);
  // The time until `units` (at most perMinute()) are left, rounded up to a microsecond; 0 if they are.
  std::chrono::microseconds until(int64_t units, Time now);
  std::chrono::microseconds untilFull(Time now) { return until(per_minute_, now); }

 private:
  void refill(Time now);

  int64_t per_minute_;
  int64_t level_;
  int64_t fraction_ = 0;  // in units of 1 / kMinute, below kMinute; 0 while the bucket is full
  Time last_;
};

}  // namespace chorus::server
