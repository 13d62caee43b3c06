#include "runtime/kv_cache/block_manager.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace chorus {
namespace {

TEST(BlockManager, ExtendsInTokensAndReleases) {
  BlockManager manager(4, 8, 2, 32);
  EXPECT_EQ(manager.blocksFor(0), 0);
  EXPECT_EQ(manager.blocksFor(8), 1);
  EXPECT_EQ(manager.blocksFor(9), 2);
  ASSERT_TRUE(manager.extend(0, 9));
  EXPECT_EQ(manager.table(0).size(), 2u);
  ASSERT_TRUE(manager.extend(0, 16));
  EXPECT_EQ(manager.usedBlocks(), 2);
  EXPECT_FALSE(manager.extend(1, 17));
  EXPECT_TRUE(manager.table(1).empty());
  ASSERT_TRUE(manager.extend(1, 16));
  EXPECT_EQ(manager.freeBlocks(), 0);
  manager.release(0);
  EXPECT_EQ(manager.freeBlocks(), 2);
  EXPECT_TRUE(manager.table(0).empty());
}

TEST(BlockManager, SharedBlocksLiveUntilTheLastRelease) {
  BlockManager manager(3, 4, 2, 12);
  ASSERT_TRUE(manager.extend(0, 8));
  manager.share(1, manager.table(0));
  EXPECT_EQ(manager.references(manager.table(0)[0]), 2);
  ASSERT_TRUE(manager.extend(1, 12));
  EXPECT_EQ(manager.usedBlocks(), 3);
  manager.release(0);
  EXPECT_EQ(manager.usedBlocks(), 3);
  manager.release(1);
  EXPECT_EQ(manager.usedBlocks(), 0);
}

TEST(BlockManager, TablesKeepTheirAddress) {
  BlockManager manager(8, 2, 3, 8);
  ASSERT_TRUE(manager.extend(2, 2));
  const int32_t* before = manager.table(2).data();
  ASSERT_TRUE(manager.extend(1, 8));
  ASSERT_TRUE(manager.extend(2, 8));
  EXPECT_EQ(manager.table(2).data(), before);
}

// A plain model: a map from slot to block ids, references counted by looking.
TEST(BlockManager, RandomisedAgainstAPlainModel) {
  const unsigned seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int below) { return static_cast<int32_t>(random() % static_cast<unsigned>(below)); };
  constexpr int32_t kBlocks = 23, kTokens = 4, kSlots = 6, kMaxSeqLen = 40;
  BlockManager manager(kBlocks, kTokens, kSlots, kMaxSeqLen);
  std::map<int32_t, std::vector<int32_t>> model;
  for (int step = 0; step < 20000; ++step) {
    const int32_t slot = pick(kSlots);
    auto& mine = model[slot];
    switch (pick(4)) {
      case 0:
        manager.release(slot);
        mine.clear();
        break;
      case 1: {
        const auto& other = model[pick(kSlots)];
        if (!mine.empty() || other.empty()) break;
        mine.assign(other.begin(), other.begin() + 1 + pick(static_cast<int>(other.size())));
        manager.share(slot, mine);
        break;
      }
      default: {
        const int32_t tokens = pick(kMaxSeqLen + 1);
        std::set<int32_t> used;
        for (const auto& [_, blocks] : model) used.insert(blocks.begin(), blocks.end());
        const int32_t missing = manager.blocksFor(tokens) - static_cast<int32_t>(mine.size());
        const bool fits = missing <= kBlocks - static_cast<int32_t>(used.size());
        ASSERT_EQ(manager.extend(slot, tokens), fits) << step;
        const auto table = manager.table(slot);
        if (fits && missing > 0) {
          for (size_t i = mine.size(); i < table.size(); ++i) {
            ASSERT_FALSE(used.contains(table[i])) << "a used block was given again at " << step;
            mine.push_back(table[i]);
          }
        }
      }
    }
    std::map<int32_t, int32_t> references;
    for (const auto& [owner, blocks] : model) {
      const auto table = manager.table(owner);
      ASSERT_EQ(std::vector<int32_t>(table.begin(), table.end()), blocks) << step;
      for (const int32_t block : blocks) ++references[block];
    }
    ASSERT_EQ(manager.usedBlocks(), static_cast<int32_t>(references.size())) << step;
    for (const auto& [block, count] : references) ASSERT_EQ(manager.references(block), count) << step;
  }
}

}  // namespace
}  // namespace chorus
