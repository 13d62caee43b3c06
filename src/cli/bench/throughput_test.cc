#include "cli/bench/throughput.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

// The second request starts a step later than the first.
const TokenTimes kTimes = {{1.0, 2.0, 2.5, 3.0}, {2.0, 2.5, 3.0, 3.5}};
const ExecutorWork kWork{.batch = 2, .prompt = 100, .new_tokens = 3};

TEST(ThroughputTest, ContextEndsWithTheLastFirstToken) {
  const ThroughputResult result = throughputOf(kTimes, kWork);
  EXPECT_DOUBLE_EQ(result.context_tokens_per_s, 2 * 100 / 2.0);
  EXPECT_DOUBLE_EQ(result.generation_tokens_per_s, 5 / 1.5);
}

TEST(ThroughputTest, PassesHaveMedians) {
  const TokenTimes fast = {{0.5, 1.0}, {0.5, 1.0}}, slow = {{8.0, 9.0}, {8.0, 9.0}};
  const ThroughputResult result = throughputOf(std::vector{slow, fast, kTimes}, kWork);
  EXPECT_DOUBLE_EQ(result.context_tokens_per_s, 100);
  EXPECT_DOUBLE_EQ(result.generation_tokens_per_s, 5 / 1.5);
}

TEST(ThroughputTest, StepsCountOnceAllHaveStarted) {
  const LatencyResult result = latencyOf({kTimes});
  EXPECT_EQ(result.first.count, 2u);
  EXPECT_DOUBLE_EQ(result.first.max, 2.0);
  EXPECT_EQ(result.step.count, 5u);
  EXPECT_DOUBLE_EQ(result.step.max, 0.5);
}

}  // namespace
}  // namespace chorus
