#include "models/kv_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using ::testing::ElementsAre;

ModelSpec specOf(const std::vector<int64_t>& windows) {
  ModelSpec spec;
  for (const int64_t window : windows) spec.layers.emplace_back().attention.window = window;
  return spec;
}

std::vector<int64_t> windowsOf(const std::vector<KvGroup>& groups) {
  std::vector<int64_t> windows;
  for (const KvGroup& group : groups) windows.push_back(group.window);
  return windows;
}

TEST(KvGroups, EqualLayersAreOneGroup) {
  const auto groups = kvGroups(specOf({0, 0, 0}), 100);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2));
  EXPECT_THAT(windowsOf(kvGroups(specOf({16, 16}), 100)), ElementsAre(16));
}

TEST(KvGroups, AWindowThatHoldsWholeSequencesIsNone) {
  EXPECT_THAT(windowsOf(kvGroups(specOf({0, 100, 200}), 100)), ElementsAre(0));
  EXPECT_THAT(windowsOf(kvGroups(specOf({0, 99}), 100)), ElementsAre(0, 99));
}

TEST(KvGroups, ManyLocalLayersHaveSeveralGroupsOfTheSizeOfTheFewGlobalOnes) {
  std::vector<int64_t> windows(26, 512);
  for (const size_t global : {5u, 11u, 17u, 23u}) windows[global] = 0;
  const auto groups = kvGroups(specOf(windows), 32768);
  EXPECT_THAT(windowsOf(groups), ElementsAre(0, 512, 512, 512, 512, 512, 512));
  EXPECT_THAT(groups[0].layers, ElementsAre(5, 11, 17, 23));
  EXPECT_THAT(groups[1].layers, ElementsAre(0, 7, 14, 21)) << "every sixth local layer";
  std::vector<int32_t> all;
  for (const KvGroup& group : groups) {
    EXPECT_LE(group.layers.size(), 4);
    all.insert(all.end(), group.layers.begin(), group.layers.end());
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < windows.size(); ++i) EXPECT_EQ(all.at(i), static_cast<int32_t>(i));
}

TEST(KvGroups, HalfAndHalfAreTwoGroups) {
  std::vector<int64_t> windows;
  for (int i = 0; i < 42; ++i) windows.push_back(i % 2 == 0 ? 4096 : 0);
  EXPECT_THAT(windowsOf(kvGroups(specOf(windows), 8192)), ElementsAre(0, 4096));
}

TEST(KvGroups, TheNumberOfGroupsIsSmall) {
  std::vector<int64_t> windows(80, 128);
  windows[79] = 0;
  EXPECT_EQ(kvGroups(specOf(windows), 1 << 20).size(), 8) << "seven of 12 layers, and the one without a window";
  for (int64_t i = 0; i < 12; ++i) windows[static_cast<size_t>(i)] = 100 + i;
  EXPECT_EQ(kvGroups(specOf(windows), 1 << 20).size(), 14) << "one for each window";
}

}  // namespace
}  // namespace chorus
