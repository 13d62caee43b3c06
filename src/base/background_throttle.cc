#include "base/background_throttle.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/thread_time.h"

namespace chorus {

ThrottleClock ThrottleClock::ofThisThread(std::function<bool()> others_need_it) {
  return {[](size_t) { return Duration(threadNanoseconds()); },
          [](Duration time) { std::this_thread::sleep_for(time); }, std::move(others_need_it)};
}

BackgroundThrottle::BackgroundThrottle(ThrottleClock clock)
    : clock_(std::move(clock)), slice_begin_(clock_.now(0)), last_look_(slice_begin_) {}

void BackgroundThrottle::look() {
  const Duration now = clock_.now(std::exchange(bytes_, 0));
  constexpr int kForgetful = 128;
  const Duration longest_of_late = std::max(now - last_look_, expected_piece_ - expected_piece_ / kForgetful);
  expected_piece_ = std::min<Duration>(longest_of_late, kSlice / 2);
  last_look_ = now;
  const Duration slice = now - slice_begin_;
  longest_slice_ = std::max(longest_slice_, slice);
  if (slice + expected_piece_ <= kSlice) return;
  if (clock_.others_need_it()) clock_.rest(std::min(slice, kSlice) * kRest);
  slice_begin_ = last_look_ = clock_.now(0);
}

}  // namespace chorus
