// Minimum rate at which a client must read its answer. Pure: the caller passes the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace chorus::server {

// A measurement lasts from begin(), when bytes begin to wait for the client, until none wait.
class ReadPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The client has `allowance` plus (bytes taken) / `rate` of time. rate: bytes/s; 0: no limit.
  ReadPace(std::chrono::milliseconds allowance, uint64_t rate) : allowance_(allowance), rate_(rate) {}

  void begin(TimePoint now) {
    since_ = now;
    taken_ = 0;
  }
  void took(size_t bytes) { taken_ += bytes; }
  // Time at which the client has fallen too far behind. Each took() moves it later.
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
