// The pace that a client must keep in reading its answer. Pure: the caller has the clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace chorus::server {

// Counts from the moment in which bytes begin to wait for the client until none wait.
class ReadPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // rate: bytes a second, on average, beyond the allowance; 0: any.
  ReadPace(std::chrono::milliseconds allowance, uint64_t rate) : allowance_(allowance), rate_(rate) {}

  void begin(TimePoint now) {
    since_ = now;
    taken_ = 0;
  }
  void took(size_t bytes) { taken_ += bytes; }
  // When the client has fallen too far behind, unless it takes more bytes before.
  TimePoint deadline() const {
    if (rate_ == 0) return TimePoint::max();
    return since_ + allowance_ + std::chrono::milliseconds(taken_ * 1000 / rate_);
  }

 private:
  std::chrono::milliseconds allowance_;
  uint64_t rate_;
  TimePoint since_{};
  uint64_t taken_ = 0;
};

}  // namespace chorus::server
