#include "cli/bench/serve/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace chorus {
namespace {

std::vector<double> gapsOf(Arrivals arrivals, int count) {
  std::vector<double> gaps;
  double last = 0;
  for (int i = 0; i < count; ++i) {
    const double time = arrivals.next();
    gaps.push_back(time - last);
    last = time;
  }
  return gaps;
}

TEST(ArrivalsTest, ConstantArrivalsAreTheSameDistanceApart) {
  Arrivals arrivals(ArrivalKind::kConstant, 4.0, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_DOUBLE_EQ(arrivals.next(), i * 0.25);
}

TEST(ArrivalsTest, PoissonGapsAreExponential) {
  constexpr int kCount = 200'000;
  constexpr double kRate = 50.0;
  std::vector<double> gaps = gapsOf(Arrivals(ArrivalKind::kPoisson, kRate, 7), kCount);
  double sum = 0;
  for (const double gap : gaps) {
    ASSERT_GE(gap, 0);
    sum += gap;
  }
  // The tolerance is five standard deviations of the mean of kCount gaps.
  EXPECT_NEAR(sum / kCount, 1 / kRate, 5 / kRate / std::sqrt(kCount));
  // Kolmogorov-Smirnov test against the exponential distribution, at a significance of one in a million.
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;
  for (int i = 0; i < kCount; ++i) {
    const double expected = 1 - std::exp(-kRate * gaps[static_cast<size_t>(i)]);
    distance =
        std::max({distance, std::abs(expected - i / double{kCount}), std::abs(expected - (i + 1) / double{kCount})});
  }
  EXPECT_LT(distance, 2.7 / std::sqrt(kCount));
}

TEST(ArrivalsTest, ASeedIsOneProcess) {
  EXPECT_EQ(gapsOf(Arrivals(ArrivalKind::kPoisson, 3, 11), 100), gapsOf(Arrivals(ArrivalKind::kPoisson, 3, 11), 100));
  EXPECT_NE(gapsOf(Arrivals(ArrivalKind::kPoisson, 3, 11), 100), gapsOf(Arrivals(ArrivalKind::kPoisson, 3, 12), 100));
}

}  // namespace
}  // namespace chorus
