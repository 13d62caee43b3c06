// Throttle for background work. A model step keeps every core busy and ends when its slowest thread ends, so a thread
// that loads an adapter at the same time works in slices of at most a millisecond and sleeps between them.
//
// Functions whose loops may run long take a pointer to the throttle of their thread and charge it for the bytes that
// they have worked on. The pointer is null on threads that need not rest, such as a converter's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace chorus {

// The clock and the load that a BackgroundThrottle sees. Tests replace the functions.
struct ThrottleClock {
  using Duration = std::chrono::nanoseconds;
  // Processor time that the thread has used. bytes: amount charged since the last call. May throw, to end the work.
  std::function<Duration(size_t bytes)> now;
  std::function<void(Duration)> rest;    // sleeps
  std::function<bool()> others_need_it;  // whether other work would be slowed down if the thread did not rest
  static ThrottleClock ofThisThread(std::function<bool()> others_need_it);
};

// Limits one background thread to slices of work with rests between them. Not thread-safe.
class BackgroundThrottle {
 public:
  using Duration = ThrottleClock::Duration;
  static constexpr Duration kSlice = std::chrono::milliseconds(1);
  // Amount of work between two clock reads (a piece): about 50 us of packing or hashing.
  static constexpr size_t kPieceBytes = size_t{64} << 10;
  // A rest lasts kRest times as long as the slice before it, so the thread uses at most half of one core. With longer
  // rests or a lower thread priority, adapter loads finish more slowly than they arrive and queue up (seen with
  // `chorus bench adapters`).
  static constexpr int kRest = 1;

  explicit BackgroundThrottle(ThrottleClock clock);

  // Reports that `bytes` bytes were read, checked, hashed, converted or packed. May sleep. Throws what the clock
  // throws.
  void charge(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ >= kPieceBytes) look();
  }
  // Counts time for which the work waited for others, for example for memory.
  void addWait(Duration time) { waited_ += time; }
  Duration waited() const { return waited_; }
  // The longest slice so far. A slice ends when a rest is due, even if others_need_it() then makes it unnecessary.
  Duration longestSlice() const { return longest_slice_; }

 private:
  void look();

  ThrottleClock clock_;
  size_t bytes_ = 0;
  Duration slice_begin_, last_look_;
  // Upper estimate of the next piece's time: a decaying maximum of recent piece times, of at most kSlice / 2. The cap
  // and the decay keep one interrupted piece from causing a rest after every later piece. Starts at a guess, because
  // the first long piece must fit into its slice too.
  Duration expected_piece_ = kSlice / 4;
  Duration longest_slice_{0}, waited_{0};
};

// Charges the throttle, if there is one.
inline void chargeThrottle(BackgroundThrottle* throttle, size_t bytes) {
  if (throttle != nullptr) throttle->charge(bytes);
}

// Splits the items [0, count) of bytes_each bytes into pieces of about BackgroundThrottle::kPieceBytes, and calls
// piece(begin, n) and then chargeThrottle() for each. The size of every piece but the last is a multiple of
// granularity.
template <typename F>
void inPieces(int64_t count, size_t bytes_each, BackgroundThrottle* throttle, F&& piece, int64_t granularity = 1) {
  const auto fit =
      static_cast<int64_t>(BackgroundThrottle::kPieceBytes / (bytes_each > 0 ? bytes_each : 1)) / granularity;
  const int64_t step = (fit > 0 ? fit : 1) * granularity;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t n = count - begin < step ? count - begin : step;
    piece(begin, n);
    chargeThrottle(throttle, static_cast<size_t>(n) * bytes_each);
  }
}

}  // namespace chorus
