// Progress display of a long job on stderr: on a terminal, one line with bytes, rate and time left that is redrawn in
// place; otherwise a plain line every few seconds. A short job shows nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace chorus {

// Output and clock of a Progress. Tests replace them.
struct ProgressOutput {
  using Clock = std::chrono::steady_clock;
  std::function<void(std::string_view text)> write;
  std::function<Clock::time_point()> now = Clock::now;
  bool terminal = false;  // true: the line may be redrawn in place
  bool enabled = true;

  // Writes to stderr. `terminal` is detected; `enabled` is false when the log level hides info messages.
  static ProgressOutput standardError();
};

// add() is thread-safe. It costs an atomic addition and a clock read, so call it per megabyte, not per element.
class Progress {
 public:
  enum class Unit { kBytes, kItems };

  // what: label of the job, e.g. "converting". total: amount of the whole job in `unit`; 0 when it is unknown.
  Progress(std::string what, uint64_t total, Unit unit = Unit::kBytes,
           ProgressOutput output = ProgressOutput::standardError());
  // Draws a started terminal line once more and ends it.
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
  size_t drawn_width_ = 0;  // width of the line on the terminal; 0: no line was started
};

}  // namespace chorus
