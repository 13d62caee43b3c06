#include "base/background_throttle.h"

#include <gtest/gtest.h>

#include <vector>

namespace chorus {
namespace {

using std::chrono::microseconds;

// A clock that advances only when the test sets it.
struct FakeMachine {
  BackgroundThrottle::Duration time{0};
  bool busy = true;
  std::vector<BackgroundThrottle::Duration> rests;

  ThrottleClock clock() {
    return {[this](size_t) { return time; }, [this](BackgroundThrottle::Duration rest) { rests.push_back(rest); },
            [this] { return busy; }};
  }
};

TEST(BackgroundThrottle, RestsBeforeASliceIsOver) {
  FakeMachine machine;
  BackgroundThrottle throttle(machine.clock());
  // Each piece takes 30 to 90 us.
  for (int i = 0; i < 1000; ++i) {
    machine.time += microseconds(30 + i * 7 % 61);
    throttle.charge(BackgroundThrottle::kPieceBytes);
  }
  EXPECT_LE(throttle.longestSlice(), BackgroundThrottle::kSlice);
  EXPECT_GT(throttle.longestSlice(), BackgroundThrottle::kSlice / 2);
  EXPECT_NEAR(static_cast<double>(machine.rests.size()), 60 / 0.92, 8) << "a rest about every 0.9 ms of 60 ms";
  for (const auto rest : machine.rests) EXPECT_LE(rest, BackgroundThrottle::kSlice * BackgroundThrottle::kRest);
}

TEST(BackgroundThrottle, OneInterruptedPieceDoesNotShortenTheSlicesAfterIt) {
  FakeMachine machine;
  BackgroundThrottle throttle(machine.clock());
  machine.time += 5 * BackgroundThrottle::kSlice;
  throttle.charge(BackgroundThrottle::kPieceBytes);
  const auto begun = machine.rests.size();
  for (int i = 0; i < 2000; ++i) {
    machine.time += microseconds(20);
    throttle.charge(BackgroundThrottle::kPieceBytes);
  }
  EXPECT_LE(machine.rests.size() - begun, 40 / 0.8) << "a rest about every millisecond of 40 ms";
}

TEST(BackgroundThrottle, SmallAmountsAddUpToAPiece) {
  FakeMachine machine;
  int looks = 0;
  ThrottleClock clock = machine.clock();
  clock.now = [&](size_t) {
    ++looks;
    return machine.time;
  };
  BackgroundThrottle throttle(clock);
  looks = 0;
  for (size_t i = 0; i < 100; ++i) throttle.charge(BackgroundThrottle::kPieceBytes / 10);
  EXPECT_EQ(looks, 9) << "every eleventh time: ten tenths, rounded down, are not quite a piece";
}

TEST(BackgroundThrottle, DoesNotRestWhenNoOtherWorkIsSlowedDown) {
  FakeMachine machine;
  machine.busy = false;
  BackgroundThrottle throttle(machine.clock());
  for (int i = 0; i < 100; ++i) {
    machine.time += microseconds(100);
    throttle.charge(BackgroundThrottle::kPieceBytes);
  }
  EXPECT_TRUE(machine.rests.empty());
}

TEST(BackgroundThrottle, IsChargedForEveryPieceOfARange) {
  FakeMachine machine;
  BackgroundThrottle throttle(machine.clock());
  const auto work = [&](BackgroundThrottle* charged) {
    inPieces(4, BackgroundThrottle::kPieceBytes, charged,
             [&](int64_t, int64_t) { machine.time += BackgroundThrottle::kSlice; });
  };
  work(nullptr);
  EXPECT_TRUE(machine.rests.empty()) << "no throttle";
  work(&throttle);
  EXPECT_EQ(machine.rests.size(), 4u);
}

TEST(BackgroundThrottle, PiecesCoverARangeOnce) {
  std::vector<int> seen(100'000);
  int64_t longest = 0;
  inPieces(
      std::ssize(seen), 10, nullptr,
      [&](int64_t begin, int64_t count) {
        EXPECT_EQ(begin % 16, 0);
        longest = std::max(longest, count);
        for (int64_t i = begin; i < begin + count; ++i) ++seen[static_cast<size_t>(i)];
      },
      16);
  for (const int times : seen) ASSERT_EQ(times, 1);
  EXPECT_LE(longest * 10, static_cast<int64_t>(BackgroundThrottle::kPieceBytes));
  int calls = 0;
  inPieces(3, BackgroundThrottle::kPieceBytes * 2, nullptr,
           [&](int64_t, int64_t count) { calls += static_cast<int>(count); });
  EXPECT_EQ(calls, 3) << "items larger than a piece go one by one";
}

}  // namespace
}  // namespace chorus
