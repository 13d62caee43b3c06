#include "runtime/kv_cache/kv_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace chorus {
namespace {

KvBudget small() {
  KvBudget budget;
  budget.block_bytes = 1000;
  budget.demand.tokens_per_block = 16;
  budget.max_num_tokens = 64;
  budget.max_batch_size = 4;
  budget.max_seq_len = 100;  // 7 blocks per sequence
  budget.free_bytes = 40000;
  return budget;
}

TEST(KvBudget, TakesHalfOfTheFreeMemoryUpToTheFullBatch) {
  KvBudget budget = small();
  EXPECT_EQ(kvBlocks(budget), 20);
  budget.fraction = 0.25f;
  EXPECT_EQ(kvBlocks(budget), 10);
  budget.free_bytes = 1 << 30;
  EXPECT_EQ(kvBlocks(budget), 28);
}

TEST(KvBudget, MaxTokensWinsOverTheFraction) {
  KvBudget budget = small();
  budget.max_tokens = 130;
  EXPECT_EQ(kvBlocks(budget), 8);
  budget.max_tokens = 100000;
  EXPECT_EQ(kvBlocks(budget), 28);
}

TEST(KvBudget, CountsTheBlocksOfAllKvGroups) {
  KvBudget budget = small();
  budget.max_num_tokens = 16;
  budget.demand.windows = {0, 16};  // a sequence holds at most 7 blocks of one group and 3 of the other
  EXPECT_EQ(kvBlocks(budget), 20);
  budget.free_bytes = 1 << 30;
  EXPECT_EQ(kvBlocks(budget), 40) << "four sequences";
  budget.max_tokens = 112;
  EXPECT_EQ(kvBlocks(budget), 14) << "112 tokens in both groups";
  budget.max_tokens = 79;
  EXPECT_THROW(kvBlocks(budget), Error) << "8 blocks";
}

TEST(KvBudget, HoldsOneSequenceOrFails) {
  KvBudget budget = small();
  budget.max_tokens = 111;
  EXPECT_THROW(kvBlocks(budget), Error);
  budget.max_tokens = 112;
  EXPECT_EQ(kvBlocks(budget), 7);
  budget = small();
  budget.free_bytes = 6999;
  EXPECT_THROW(kvBlocks(budget), Error);
  budget.free_bytes = 13999;
  EXPECT_EQ(kvBlocks(budget), 7) << "more than half, where nobody asked for a share";
  budget.fraction = 0.5f;
  EXPECT_THROW(kvBlocks(budget), Error);
  budget.fraction.reset();
  budget.free_bytes = -5;
  EXPECT_THROW(kvBlocks(budget), Error);
  budget = small();
  budget.fraction = 0.0f;
  EXPECT_THROW(kvBlocks(budget), Error);
}

}  // namespace
}  // namespace chorus
