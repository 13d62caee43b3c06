#include "cli/bench/percentiles.h"

#include <gtest/gtest.h>

#include <numeric>

namespace chorus {
namespace {

// Expected values are numpy.percentile's.
TEST(PercentilesTest, LieBetweenNeighbours) {
  const std::vector<double> values{1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(percentileOf(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentileOf(values, 25), 1.75);
  EXPECT_DOUBLE_EQ(percentileOf(values, 50), 3);
  EXPECT_DOUBLE_EQ(percentileOf(values, 90), 6.8);
  EXPECT_DOUBLE_EQ(percentileOf(values, 99), 7.88);
  EXPECT_DOUBLE_EQ(percentileOf(values, 100), 8);
  EXPECT_DOUBLE_EQ(percentileOf({5}, 99), 5);
}

TEST(PercentilesTest, MediansOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(medianOf({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(medianOf({9, 1, 5, 6}), 5.5);
}

TEST(PercentilesTest, QuantilesAreAtEqualShares) {
  EXPECT_EQ(quantilesOf({4, 1, 2, 3}, 400), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(quantilesOf({4, 1, 2, 3}, 2), (std::vector<double>{2, 4}));
  EXPECT_EQ(quantilesOf({5, 1, 4, 2, 3}, 2), (std::vector<double>{3, 5}));  // two of five are less than a half
  EXPECT_EQ(quantilesOf({7}, 400), std::vector<double>{7});
  EXPECT_TRUE(quantilesOf({}, 400).empty());
  std::vector<double> many(100'001);
  std::iota(many.rbegin(), many.rend(), 0.0);
  const std::vector<double> few = quantilesOf(many, 400);
  ASSERT_EQ(few.size(), 400u);
  for (size_t i = 0; i < few.size(); ++i) {
    const double share = static_cast<double>(i + 1) / 400;
    EXPECT_GE((few[i] + 1) / 100'001, share);
    EXPECT_LT(few[i] / 100'001, share);
  }
}

TEST(PercentilesTest, DistributionOfUnsortedValues) {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0.0);
  const Distribution d = distributionOf(values);
  EXPECT_EQ(d.count, 101u);
  EXPECT_NEAR(d.mean, 50, 1e-9);
  EXPECT_DOUBLE_EQ(d.p50, 50);
  EXPECT_DOUBLE_EQ(d.p90, 90);
  EXPECT_DOUBLE_EQ(d.p99, 99);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_EQ(distributionJson(d, 1000)["p90"], 90000.0);
}

TEST(PercentilesTest, NoValuesHaveNoPercentiles) {
  EXPECT_EQ(distributionOf({}).count, 0u);
  EXPECT_TRUE(distributionJson(distributionOf({}), 1).is_null());
}

}  // namespace
}  // namespace chorus
