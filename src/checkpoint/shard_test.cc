#include "checkpoint/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace chorus {

bool operator==(const RowRun& a, const RowRun& b) { return a.begin == b.begin && a.rows == b.rows; }
void PrintTo(const RowRun& run, std::ostream* out) { *out << "{" << run.begin << ", " << run.rows << "}"; }

namespace {

using testing::ElementsAre;
using Axis = ShardRule::Axis;

// A qkv weight with 4 query heads and 2 key/value heads, each head of 3 rows.
WeightRow qkv() {
  return {.name = "qkv", .shape = {24, 5}, .shard = {.axis = Axis::kRows, .parts = {12, 6, 6}, .head_rows = {0, 3, 3}}};
}

TEST(ShardTest, PartsAreCutSeparately) {
  const TensorSlice slice = sliceForRank(qkv(), 2, 1);
  EXPECT_THAT(slice.runs, ElementsAre(RowRun{6, 6}, RowRun{15, 3}, RowRun{21, 3}));
  EXPECT_EQ(slice.rows, 12);
  EXPECT_EQ(slice.cols, 5);
}

TEST(ShardTest, FewerHeadsThanRanksAreRepeatedConsecutively) {
  EXPECT_THAT(sliceForRank(qkv(), 4, 1).runs, ElementsAre(RowRun{3, 3}, RowRun{12, 3}, RowRun{18, 3}));
  EXPECT_THAT(sliceForRank(qkv(), 4, 2).runs, ElementsAre(RowRun{6, 3}, RowRun{15, 3}, RowRun{21, 3}));
}

TEST(ShardTest, HeadsAreNeverTornApart) {
  EXPECT_THROW(sliceForRank(qkv(), 3, 0), Error);
  EXPECT_THROW(sliceForRank(qkv(), 8, 0), Error);
}

TEST(ShardTest, VocabularyIsPaddedWithZeros) {
  const WeightRow head = {.name = "head", .shape = {5, 2}, .shard = {.axis = Axis::kRows, .pad_rows = true}};
  EXPECT_THAT(sliceForRank(head, 4, 1).runs, ElementsAre(RowRun{2, 2}));
  EXPECT_THAT(sliceForRank(head, 4, 2).runs, ElementsAre(RowRun{4, 1}, RowRun{-1, 1}));
  EXPECT_THAT(sliceForRank(head, 4, 3).runs, ElementsAre(RowRun{-1, 2}));
}

TEST(ShardTest, ColumnsAndWholeTensors) {
  const WeightRow dense = {.name = "dense", .shape = {4, 6}, .shard = {.axis = Axis::kColumns}};
  const TensorSlice slice = sliceForRank(dense, 3, 2);
  EXPECT_THAT(slice.runs, ElementsAre(RowRun{0, 4}));
  EXPECT_EQ(slice.col_begin, 4);
  EXPECT_EQ(slice.cols, 2);
  EXPECT_THROW(sliceForRank(dense, 4, 0), Error);
  EXPECT_THAT(sliceForRank({.name = "norm", .shape = {7}}, 4, 3).runs, ElementsAre(RowRun{0, 7}));
}

TEST(ShardTest, RowsOfAnAdapterModuleFollowTheTensor) {
  EXPECT_THAT(sliceRowsForRank(qkv(), 12, 6, 2, 1), ElementsAre(RowRun{3, 3}));
  EXPECT_THAT(sliceRowsForRank(qkv(), 18, 6, 4, 1), ElementsAre(RowRun{0, 3}));
  EXPECT_THAT(sliceRowsForRank(qkv(), 0, 24, 2, 0), ElementsAre(RowRun{0, 6}, RowRun{12, 3}, RowRun{18, 3}));
}

TEST(ShardTest, FindsWhereAPartBeginsOnTheRank) {
  EXPECT_EQ(rankRowBegin(qkv(), 0, 2, 1), 0);
  EXPECT_EQ(rankRowBegin(qkv(), 12, 2, 1), 6);
  EXPECT_EQ(rankRowBegin(qkv(), 18, 2, 1), 9);
  EXPECT_EQ(rankRowBegin(qkv(), 18, 4, 3), 6);
  EXPECT_EQ(rankRowBegin(qkv(), 18, 1, 0), 18);
}

TEST(ShardTest, FindsWhereARowBeginsInTheRanksSlot) {
  // A slot of three rows; the second is repeated on ranks that have none of their own.
  const WeightTable table = {
      {.name = "third", .shape = {8, 5}, .slot = slotOf(LinearId::kFc, 14), .shard = {.axis = Axis::kRows}},
      {.name = "first", .shape = {8, 5}, .slot = slotOf(LinearId::kFc), .shard = {.axis = Axis::kRows}},
      {.name = "second",
       .shape = {6, 5},
       .slot = slotOf(LinearId::kFc, 8),
       .shard = {.axis = Axis::kRows, .parts = {6}, .head_rows = {3}}},
      {.name = "bias", .shape = {8}, .slot = slotOf(LinearId::kFc).bias(), .shard = {.axis = Axis::kRows}}};
  EXPECT_EQ(rankSlotBegin(table, table[1], 4, 3), 0);
  EXPECT_EQ(rankSlotBegin(table, table[2], 4, 3), 2);
  EXPECT_EQ(rankSlotBegin(table, table[0], 4, 3), 5);
  EXPECT_EQ(rankSlotBegin(table, table[0], 1, 0), 14);
  EXPECT_EQ(rankSlotBegin(table, table[3], 4, 3), 0);
}

TEST(RankTensorsTest, LayersAreLocalAndStagesOwnTheirEnds) {
  const WeightTable table = {{.name = "embedding", .shape = {8, 4}, .stage = Stage::kFirst},
                             {.name = "layers.{layer}.w", .shape = {4, 4}, .shard = {.axis = Axis::kRows}},
                             {.name = "head", .shape = {8, 4}, .stage = Stage::kLast}};
  ModelConfig config;
  config.dtype = DType::kBFloat16;
  config.num_hidden_layers = 3;
  config.mapping = {.tp_size = 2, .pp_size = 2};
  const auto names = [&](int32_t rank) {
    std::vector<std::string> result;
    for (const RankTensor& tensor : rankTensors(table, config, rank)) {
      result.push_back(tensor.name + "@" + std::to_string(tensor.layer));
    }
    return result;
  };
  EXPECT_THAT(names(1), ElementsAre("embedding@-1", "layers.0.w@0", "layers.1.w@1"));
  EXPECT_THAT(names(2), ElementsAre("layers.0.w@2", "head@-1"));
  EXPECT_THAT(rankTensors(table, config, 0)[1].shape, ElementsAre(2, 4));
  EXPECT_EQ(rankTensors(table, config, 0)[1].dtype, DType::kBFloat16);
}

}  // namespace
}  // namespace chorus
