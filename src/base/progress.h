// How far a long job is: on a terminal one line that is drawn over itself, with bytes, rate and time left; elsewhere a
// plain line every few seconds. Always on stderr, and nothing at all for a job that is quick.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace chorus {

// Where the lines go and what time it is; tests put their own here.
struct ProgressOutput {
  using Clock = std::chrono::steady_clock;
  std::function<void(std::string_view text)> write;
  std::function<Clock::time_point()> now = Clock::now;
  bool terminal = false;  // lines may be drawn over
  bool enabled = true;

  // stderr, a terminal when it is one; disabled when the log level hides information.
  static ProgressOutput standardError();
};

// add() is thread-safe and costs an addition and a look at the clock: call it for pieces of a megabyte, not for
// elements.
class Progress {
 public:
  enum class Unit { kBytes, kItems };

  // what: of the job, "converting". total 0: not known.
  Progress(std::string what, uint64_t total, Unit unit = Unit::kBytes,
           ProgressOutput output = ProgressOutput::standardError());
  // Ends the line that was begun.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(uint64_t amount);
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  using Clock = ProgressOutput::Clock;
  std::string line(uint64_t done, std::chrono::duration<double> elapsed) const;
  std::string amount(double value) const;
  void draw(Clock::time_point now);

  const std::string what_;
  const uint64_t total_;
  const Unit unit_;
  const ProgressOutput output_;
  const Clock::time_point begin_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_draw_;  // nanoseconds after begin_
  std::mutex mutex_;
  size_t drawn_width_ = 0;  // of the terminal's line; 0: none was begun
};

}  // namespace chorus
