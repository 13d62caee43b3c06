// Cache lines that a panel kernel prefetches while it multiplies, so that they are there when later products need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hwy/base.h>

namespace chorus {

// Consecutive cache lines.
struct LineRun {
  const std::byte* at;
  int64_t lines;  // at least one
};

// The lines of several runs in their order. Several kernels may take lines of one queue, one after the other.
class LineQueue {
 public:
  LineQueue() = default;
  // runs: must stay valid. per_step: lines that one step prefetches.
  LineQueue(std::span<const LineRun> runs, int per_step)
      : next_(runs.data()), end_(runs.data() + runs.size()), per_step_(per_step) {
    begin();
  }

  // Prefetches the lines of `steps` steps into L2, as long as there are any.
  HWY_INLINE void take(int steps) {
    for (int n = per_step_ * steps; n > 0; --n) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (--left_ == 0) {
        begin();
        if (per_step_ == 0) return;
      }
    }
  }
  // Returns the number of lines that were not taken yet. For tests.
  int64_t left() const {
    int64_t lines = per_step_ == 0 ? 0 : left_;
    for (const LineRun* run = next_; run != end_; ++run) lines += run->lines;
    return lines;
  }

 private:
  HWY_INLINE void begin() {
    if (next_ == end_) {
      per_step_ = 0;
      return;
    }
    at_ = next_->at;
    left_ = next_->lines;
    ++next_;
  }

  const std::byte* at_ = nullptr;  // the next line
  int64_t left_ = 0;               // lines of its run, from this one on
  const LineRun* next_ = nullptr;  // the run after it
  const LineRun* end_ = nullptr;
  int per_step_ = 0;
};

// A kernel's own copy of a queue, which the compiler can keep in registers. `queue` may be null; otherwise it is set to
// the copy's state when the copy is destroyed.
class LineQueueCopy : public LineQueue {
 public:
  HWY_INLINE explicit LineQueueCopy(LineQueue* queue)
      : LineQueue(queue != nullptr ? *queue : LineQueue()), queue_(queue) {}
  HWY_INLINE ~LineQueueCopy() {
    if (queue_ != nullptr) *queue_ = static_cast<const LineQueue&>(*this);
  }
  LineQueueCopy(const LineQueueCopy&) = delete;
  LineQueueCopy& operator=(const LineQueueCopy&) = delete;

 private:
  LineQueue* queue_;
};

}  // namespace chorus
