// Lists of cache lines to prefetch (LineQueue), and their division among kernel calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/linear/line_queue.h"

namespace chorus {

// A list of runs. Runs beyond kMost are left out: prefetching is a hint.
class LineRuns {
 public:
  static constexpr size_t kMost = 128;

  void add(const std::byte* at, int64_t lines) {
    if (lines <= 0 || count_ == kMost) return;
    runs_[count_++] = {at, lines};
    lines_ += lines;
  }
  void clear() { count_ = 0, lines_ = 0; }
  std::span<const LineRun> runs() const { return {runs_, count_}; }
  int64_t lines() const { return lines_; }

  // Returns a queue of these runs, which must not change while it is used. It spreads the lines over `steps` steps, but
  // takes at most kMostOfStep in one.
  LineQueue queue(int64_t steps) const {
    constexpr int64_t kMostOfStep = 8;
    if (steps <= 0) return {};
    return {runs(), static_cast<int>(std::min((lines_ + steps - 1) / steps, kMostOfStep))};
  }

 private:
  LineRun runs_[kMost];
  size_t count_ = 0;
  int64_t lines_ = 0;
};

// Deals out the lines of a LineRuns, which must not change meanwhile, in equal shares and in their order.
class LineShares {
 public:
  LineShares(const LineRuns& from, int64_t shares)
      : left_(from.runs()), share_(shares > 0 ? (from.lines() + shares - 1) / shares : 0) {}

  // Adds the next share to `to`. After all shares there is nothing left.
  void addShare(LineRuns& to) {
    for (int64_t missing = share_; missing > 0 && !left_.empty();) {
      const int64_t some = std::min(missing, left_.front().lines - dealt_);
      to.add(left_.front().at + dealt_ * 64, some);
      missing -= some;
      dealt_ += some;
      if (dealt_ < left_.front().lines) continue;
      left_ = left_.subspan(1);
      dealt_ = 0;
    }
  }

 private:
  std::span<const LineRun> left_;
  int64_t share_;      // lines
  int64_t dealt_ = 0;  // lines of the first run
};

}  // namespace chorus
