#include "runtime/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using ::testing::ElementsAre;

std::vector<std::pair<int, int>> pairs(const std::vector<RowRange>& ranges) {
  std::vector<std::pair<int, int>> out;
  for (const auto& range : ranges) out.emplace_back(range.begin, range.end);
  return out;
}

TEST(StepBuilder, PacksRowsAndKeepsPositionsAndTables) {
  StepBuilder builder(4, 16);
  const std::vector<int32_t> prompt = {5, 6, 7}, next = {9}, table_a = {3, 1}, table_b = {2};
  const std::vector<StepSequence> sequences = {{prompt, 4, table_a, nullptr, LogitsWanted::kNone},
                                               {next, 2, table_b, nullptr, LogitsWanted::kLastRow}};
  const StepInput& input = builder.build(sequences);
  EXPECT_THAT(input.tokens, ElementsAre(5, 6, 7, 9));
  ASSERT_EQ(input.sequences.size(), 2u);
  EXPECT_EQ(input.sequences[0].row_begin, 0);
  EXPECT_EQ(input.sequences[0].num_rows, 3);
  EXPECT_EQ(input.sequences[0].first_position, 4);
  EXPECT_EQ(input.sequences[0].block_tables[0].data(), table_a.data());
  EXPECT_EQ(input.sequences[1].row_begin, 3);
  EXPECT_THAT(input.logits_rows, ElementsAre(3));
  EXPECT_EQ(builder.logitsOf(0).end, 0);
  EXPECT_EQ(builder.logitsOf(1).begin, 0);
  EXPECT_EQ(builder.logitsOf(1).end, 1);
  EXPECT_TRUE(input.adapters.empty());
}

TEST(StepBuilder, AllRowsOfAContextMayWantLogits) {
  StepBuilder builder(4, 16);
  const std::vector<int32_t> prompt = {5, 6, 7}, next = {9}, table = {0};
  const std::vector<StepSequence> sequences = {{prompt, 0, table, nullptr, LogitsWanted::kAllRows},
                                               {next, 3, table, nullptr, LogitsWanted::kLastRow}};
  EXPECT_THAT(builder.build(sequences).logits_rows, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(builder.logitsOf(0).end, 3);
  EXPECT_EQ(builder.logitsOf(1).begin, 3);
}

TEST(StepBuilder, AnAdapterHasOneGroupOfAscendingRanges) {
  StepBuilder builder(8, 16);
  const PreparedAdapter one{.id = AdapterId{1}}, two{.id = AdapterId{2}};
  const std::vector<int32_t> pair = {1, 2}, single = {3}, table = {0};
  const auto sequence = [&](const std::vector<int32_t>& tokens, const PreparedAdapter* adapter) {
    return StepSequence{tokens, 0, table, adapter, LogitsWanted::kLastRow};
  };
  // Adapters of the contexts: none, one, one, two. Adapters of the generation steps: none, one, two.
  const std::vector<StepSequence> sequences = {
      sequence(pair, nullptr),   sequence(pair, &one),   sequence(pair, &one),  sequence(pair, &two),
      sequence(single, nullptr), sequence(single, &one), sequence(single, &two)};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const StepInput& input = builder.build(sequences);
    ASSERT_EQ(input.adapters.size(), 2u);
    EXPECT_EQ(input.adapters[0].adapter, one.id);
    EXPECT_THAT(pairs(input.adapters[0].ranges), ElementsAre(std::pair(2, 6), std::pair(9, 10)));
    EXPECT_EQ(input.adapters[1].adapter, two.id);
    EXPECT_THAT(pairs(input.adapters[1].ranges), ElementsAre(std::pair(6, 8), std::pair(10, 11)));
  }
}

}  // namespace
}  // namespace chorus
