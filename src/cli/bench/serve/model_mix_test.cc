#include "cli/bench/serve/model_mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace chorus {
namespace {

TEST(ZipfChoiceTest, ProbabilitiesFollowTheLaw) {
  for (const double skew : {0.0, 0.5, 1.0, 2.0}) {
    const ZipfChoice zipf(50, skew);
    double sum = 0;
    for (size_t rank = 0; rank < 50; ++rank) {
      EXPECT_NEAR(zipf.probability(rank) / zipf.probability(0), std::pow(static_cast<double>(rank + 1), -skew), 1e-12);
      sum += zipf.probability(rank);
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(ZipfChoiceTest, EveryNumberHasItsRank) {
  const ZipfChoice zipf(3, 1.0);  // 6/11, 3/11, 2/11
  EXPECT_EQ(zipf.choose(0.0), 0u);
  EXPECT_EQ(zipf.choose(6.0 / 11 - 1e-9), 0u);
  EXPECT_EQ(zipf.choose(6.0 / 11 + 1e-9), 1u);
  EXPECT_EQ(zipf.choose(9.0 / 11 + 1e-9), 2u);
  EXPECT_EQ(zipf.choose(1 - 0x1.0p-53), 2u);
  EXPECT_EQ(ZipfChoice(1, 3.0).choose(0.999), 0u);
}

std::vector<int> counts(ModelMix& mix, size_t models, double begin, int choices) {
  std::vector<int> seen(models);
  for (int i = 0; i < choices; ++i) ++seen[mix.choose(begin)];
  return seen;
}

TEST(ModelMixTest, FrequenciesFollowTheLaw) {
  constexpr int kChoices = 100'000;
  ModelMix mix(8, 1.2, 0, 5);
  const ZipfChoice zipf(8, 1.2);
  const std::vector<int> seen = counts(mix, 8, 0, kChoices);
  for (size_t i = 0; i < 8; ++i) {
    const double p = zipf.probability(i);
    EXPECT_NEAR(seen[i], p * kChoices, 5 * std::sqrt(kChoices * p * (1 - p))) << i;
  }
}

TEST(ModelMixTest, ChurnMakesOthersPopular) {
  ModelMix mix(64, 1.5, 10.0, 9), same(64, 1.5, 10.0, 9), still(64, 1.5, 0, 9);
  std::set<size_t> favourites;
  for (int epoch = 0; epoch < 10; ++epoch) {
    const double time = epoch * 10.0 + 5;
    const std::vector<int> seen = counts(mix, 64, time, 2000);
    EXPECT_EQ(seen, counts(same, 64, time, 2000));
    favourites.insert(static_cast<size_t>(std::max_element(seen.begin(), seen.end()) - seen.begin()));
    const std::vector<int> unchanged = counts(still, 64, time, 2000);
    EXPECT_EQ(std::max_element(unchanged.begin(), unchanged.end()) - unchanged.begin(), 0);
  }
  EXPECT_GE(favourites.size(), 8u);
}

TEST(ModelMixTest, AnEpochWithoutRequestsChangesNothingLater) {
  ModelMix often(64, 1.5, 1.0, 3), seldom(64, 1.5, 1.0, 3);
  for (int i = 0; i < 5; ++i) often.choose(i + 0.5);
  for (int i = 0; i < 5; ++i) seldom.choose(0.5);
  EXPECT_EQ(counts(often, 64, 9.5, 500), counts(seldom, 64, 9.5, 500));
}

}  // namespace
}  // namespace chorus
