// Keeps the memory of a large request body for the next one, because touching new pages takes longer than receiving the
// bytes that they hold.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

namespace chorus::server {

// Thread-safe. Holds at most one body.
class BodyMemory {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr size_t kMost = size_t{64} << 20;  // larger memory is needed too rarely
  static constexpr std::chrono::seconds kLongest{60};

  // An empty string with at least this capacity.
  std::string take(size_t capacity);
  // Takes over the memory of a body that is no longer needed.
  void give(std::string body, Time now) noexcept;
  // Frees memory that nobody has taken for kLongest.
  void freeUnused(Time now) noexcept;

 private:
  std::mutex mutex_;  // guards the members below
  std::string kept_;
  Time since_;
};

}  // namespace chorus::server
