// Divides a sequence of tasks among threads by work stealing. A thread mostly takes consecutive tasks, because these
// read consecutive memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace chorus {

// Queues of task numbers.
//   - deal() gives every queue an equal range of consecutive tasks.
//   - take() takes tasks from the front of one queue. If this queue is empty, it steals from the back of another, so
//     that no thread waits long for another at the end. Every task is taken once.
//   - take() may run on several threads at once, also for the same queue. deal() must not run at the same time as
//     take().
class TaskRanges {
 public:
  struct Range {
    int64_t begin = 0, end = 0;
    explicit operator bool() const { return begin < end; }
  };

  explicit TaskRanges(int queues) : count_(queues), queues_(std::make_unique<Queue[]>(static_cast<size_t>(queues))) {}

  int queues() const { return count_; }

  // tasks: number of tasks, less than 2^32. max_length: maximum length of the ranges that take() returns.
  void deal(int64_t tasks, int64_t max_length) {
    max_length_ = max_length;
    for (int64_t q = 0; q < count_; ++q) {
      queues_[static_cast<size_t>(q)].left.store(packed({tasks * q / count_, tasks * (q + 1) / count_}),
                                                 std::memory_order_relaxed);
    }
  }
  // Returns an empty range if no queue has tasks left. Takes at most half of a queue's remaining tasks, rounded up, so
  // that the last ranges are short.
  Range take(int queue) {
    for (int i = 0; i < count_; ++i) {
      std::atomic<uint64_t>& left = queues_[static_cast<size_t>((queue + i) % count_)].left;
      uint64_t seen = left.load(std::memory_order_relaxed);
      for (Range range = unpacked(seen); range; range = unpacked(seen)) {
        const int64_t some = std::clamp<int64_t>((range.end - range.begin + 1) / 2, 1, max_length_);
        const bool own = i == 0;
        const Range taken = own ? Range{range.begin, range.begin + some} : Range{range.end - some, range.end};
        const Range rest = own ? Range{taken.end, range.end} : Range{range.begin, taken.begin};
        if (left.compare_exchange_weak(seen, packed(rest), std::memory_order_relaxed)) return taken;
      }
    }
    return {};
  }

 private:
  struct alignas(64) Queue {
    std::atomic<uint64_t> left{0};  // remaining tasks: begin in the upper half, end in the lower
  };
  static uint64_t packed(Range range) {
    return static_cast<uint64_t>(range.begin) << 32 | static_cast<uint64_t>(range.end);
  }
  static Range unpacked(uint64_t value) {
    return {static_cast<int64_t>(value >> 32), static_cast<int64_t>(value & 0xffffffffu)};
  }

  int count_;
  int64_t max_length_ = 1;
  std::unique_ptr<Queue[]> queues_;
};

}  // namespace chorus
