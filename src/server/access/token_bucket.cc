#include "server/access/token_bucket.h"

#include <algorithm>

namespace chorus::server {
namespace {

using std::chrono::microseconds;

constexpr int64_t kMinute = microseconds(std::chrono::minutes(1)).count();
// Bounds one product of a time and a limit to 3.6e18. A longer time is taken in several steps.
constexpr microseconds kLongestStep = std::chrono::hours(1);

}  // namespace

void TokenBucket::refill(Time now) {
  while (now > last_) {
    const auto passed = std::min(std::chrono::duration_cast<microseconds>(now - last_), kLongestStep);
    if (passed.count() == 0) return;
    last_ += passed;
    const int64_t gained = passed.count() * per_minute_ + fraction_;
    level_ += gained / kMinute;
    fraction_ = gained % kMinute;
    if (level_ < per_minute_) continue;
    level_ = per_minute_;
    fraction_ = 0;
    last_ = std::max(last_, now);
  }
}

int64_t TokenBucket::left(Time now) {
  refill(now);
  return level_;
}

void TokenBucket::charge(int64_t units, Time now) {
  refill(now);
  level_ = std::min(level_ - units, per_minute_);
  if (level_ == per_minute_) fraction_ = 0;
}

void TokenBucket::setPerMinute(int64_t per_minute, Time now) {
  refill(now);
  level_ += per_minute - per_minute_;
  fraction_ = 0;
  per_minute_ = per_minute;
}

std::chrono::microseconds TokenBucket::until(int64_t units, Time now) {
  refill(now);
  if (level_ >= units) return microseconds(0);
  // ceil((missing * kMinute - fraction_) / per_minute_), without the product, which could overflow.
  const int64_t missing = units - level_;
  const int64_t minutes = missing / per_minute_, rest = missing % per_minute_;
  const int64_t partial = rest * kMinute - fraction_;
  const int64_t rounded = partial > 0 ? (partial + per_minute_ - 1) / per_minute_ : partial / per_minute_;
  return microseconds(minutes * kMinute + rounded);
}

}  // namespace chorus::server
