// Long work beside work that must not wait. A step keeps every core busy and ends when its slowest thread does, so a
// thread that loads an adapter meanwhile works in slices of at most a millisecond and rests between them.
//
// The loops that may be long say how much they did (worked); on a thread without a Pace, a converter's say, that is
// nothing but a look at a thread-local pointer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace chorus {

// What a Pace sees of the machine; tests put their own here.
struct PaceClock {
  using Duration = std::chrono::nanoseconds;
  // Processor time that the thread has used; bytes: what it was told of (worked) since the last call.
  std::function<Duration(size_t bytes)> now;
  std::function<void(Duration)> rest;    // sleeps
  std::function<bool()> others_need_it;  // whether somebody would feel it if the thread went on
  static PaceClock ofThisThread(std::function<bool()> others_need_it);
};

// Used by one thread.
class Pace {
 public:
  using Duration = PaceClock::Duration;
  static constexpr Duration kSlice = std::chrono::milliseconds(1);
  // A piece: what is done between two looks at the clock. Some 50 us of packing or hashing.
  static constexpr size_t kPieceBytes = size_t{64} << 10;
  // After a slice the thread rests this many times as long, so that it takes half of one core at most. Longer rests, or
  // a lower priority, make loads take longer than they come, and then they wait for each other (chorus bench adapters).
  static constexpr int kRest = 1;

  explicit Pace(PaceClock clock);

  // So many bytes were read, checked, hashed, converted or packed.
  void worked(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ >= kPieceBytes) look();
  }
  // The longest stretch of work so far without a rest, or without need for one.
  Duration longestSlice() const { return longest_slice_; }

 private:
  void look();

  PaceClock clock_;
  size_t bytes_ = 0;
  Duration slice_begin_, last_look_;
  // What the next piece may take: as long as the longest of late. At first a guess, for the first long one must fit
  // too. One that was interrupted counts for kSlice / 2 and is forgotten, or there would be a rest after each one ever
  // after.
  Duration expected_piece_ = kSlice / 4;
  Duration longest_slice_{0};
};

// Makes pace the one of this thread for the scope's life; scopes nest.
class PaceScope {
 public:
  explicit PaceScope(Pace& pace);
  ~PaceScope();
  PaceScope(const PaceScope&) = delete;
  PaceScope& operator=(const PaceScope&) = delete;

 private:
  Pace* outer_;
};

// Pace::worked of this thread's pace, if it has one.
void worked(size_t bytes);

// Calls piece(begin, count) for [0, count) in pieces of about Pace::kPieceBytes, bytes_each per item, each followed by
// worked(). granularity: every piece but the last is a multiple of it.
template <typename F>
void inPieces(int64_t count, size_t bytes_each, F&& piece, int64_t granularity = 1) {
  const auto fit = static_cast<int64_t>(Pace::kPieceBytes / (bytes_each > 0 ? bytes_each : 1)) / granularity;
  const int64_t step = (fit > 0 ? fit : 1) * granularity;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t n = count - begin < step ? count - begin : step;
    piece(begin, n);
    worked(static_cast<size_t>(n) * bytes_each);
  }
}

}  // namespace chorus
