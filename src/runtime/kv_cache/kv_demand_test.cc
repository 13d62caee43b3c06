#include "runtime/kv_cache/kv_demand.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(KvDemand, WithoutWindowsTheDemandIsTheTokensOfAllGroups) {
  EXPECT_EQ((KvDemand{4, {0}}.mostBlocks(17, 100)), 5);
  EXPECT_EQ((KvDemand{4, {0, 0}}.mostBlocks(17, 1)), 10);
  EXPECT_EQ((KvDemand{4, {0}}.blocksBefore(0, 1000)), 0);
}

// Every position at which a step can begin, against the blocks that the step reads and writes.
TEST(KvDemand, HoldsWhatAnyStepTouches) {
  for (int32_t width = 1; width <= 8; ++width) {
    for (int32_t window = 1; window <= 20; ++window) {
      const KvDemand demand{width, {window}};
      for (int32_t step = 1; step <= 9; ++step) {
        int32_t most = 0;
        for (int32_t first = 0; first < 64; ++first) {
          const int32_t begin = std::max(0, first - window + 1) / width, end = (first + step - 1) / width + 1;
          ASSERT_EQ(demand.blocksBefore(0, first), begin);
          most = std::max(most, end - begin);
        }
        EXPECT_EQ(demand.mostBlocks(1000, step), most) << width << " " << window << " " << step;
        EXPECT_EQ(demand.mostBlocks(1, step), 1);
      }
    }
  }
}

}  // namespace
}  // namespace chorus
