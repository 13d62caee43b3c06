#include "runtime/step_times.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

using Seconds = std::chrono::duration<double>;

TEST(StepTimes, ASharedStepHasAsManyContextTokensAsTakeTheTimeOfItsRest) {
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.contextTokens(now), kNoLimit) << "nothing is known yet";
  times.ran(0, Seconds(0.010));
  times.ran(1000, Seconds(0.110));
  EXPECT_NEAR(times.contextTokens(now), 100, 1);
  EXPECT_NEAR(times.contextTokens(now + StepTimes::kAlone), 100, 1);
  EXPECT_EQ(times.contextTokens(now + StepTimes::kAlone + std::chrono::seconds(1)), kNoLimit) << "it is alone again";
  times.shared(now + std::chrono::minutes(1));
  EXPECT_NEAR(times.contextTokens(now + std::chrono::minutes(1)), 100, 1);
}

TEST(StepTimes, AStepThatWasHeldUpCountsLittle) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran(1, Seconds(0.010));
  times.ran(1000, Seconds(0.110));
  times.ran(1000, Seconds(1.010));
  EXPECT_GT(times.contextTokens(now), 60);
  for (int i = 0; i < 200; ++i) times.ran(1000, Seconds(1.010));
  EXPECT_NEAR(times.contextTokens(now), 10, 1) << "contexts take longer for good";
}

}  // namespace
}  // namespace chorus
