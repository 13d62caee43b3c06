#include "kernels/attention/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "kernels/attention/attention.h"

namespace chorus {
namespace {

// The KV splits that the row attends to: [first, last].
int64_t firstSplit(const SequenceSpan& sequence, int32_t row, int64_t window) {
  return AttentionMask{window}.firstPosition(int64_t{sequence.first_position} + row) / kAttentionSplit;
}
int64_t lastSplit(const SequenceSpan& sequence, int32_t row) {
  return (int64_t{sequence.first_position} + row) / kAttentionSplit;
}

TEST(AttentionPlanTest, EveryRowAndKvSplitOnceAndPartialResultsApart) {
  std::mt19937 random(20240607);
  const auto integer = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  bool any_shared = false, any_refused = false;
  AttentionPlan plan;
  for (int round = 0; round < 300; ++round) {
    std::vector<SequenceSpan> spans;
    int32_t rows = 0;
    for (int32_t s = integer(1, 6); s > 0; --s) {
      const int32_t count = integer(0, 1) == 0 ? 1 : integer(1, 200);
      spans.push_back({rows, count, integer(0, 3) == 0 ? integer(0, 100000) : integer(0, 3000), {}});
      rows += count;
    }
    const std::vector<int32_t> tokens(static_cast<size_t>(rows));
    const int32_t group = integer(1, 130), kv_heads = integer(1, 8), threads = integer(1, 64);
    const int64_t window = integer(0, 1) == 0 ? 0 : integer(1, 5000);
    planAttention({tokens, spans, {}}, {group, kv_heads, window}, threads, plan);

    const std::string what =
        fmt::format("round {}, group {}, KV heads {}, threads {}, window {}", round, group, kv_heads, threads, window);
    std::map<std::tuple<int32_t, int32_t, int32_t>, int> times;  // sequence, row, KV split
    for (const AttentionItem& item : plan.items) {
      for (int32_t row = item.row_begin; row < item.row_end; ++row) {
        for (int32_t split = item.split_begin; split < item.split_end; ++split) ++times[{item.sequence, row, split}];
      }
    }
    for (const auto& [where, count] : times) ASSERT_EQ(count, 1) << what;
    for (size_t s = 0; s < spans.size(); ++s) {
      for (int32_t row = 0; row < spans[s].num_rows; ++row) {
        for (int64_t split = firstSplit(spans[s], row, window); split <= lastSplit(spans[s], row); ++split) {
          ASSERT_TRUE(times.count({static_cast<int32_t>(s), row, static_cast<int32_t>(split)})) << what;
        }
      }
    }

    int64_t next = 0;
    for (const AttentionItem& block : plan.shared) {
      ASSERT_EQ(block.partial, next) << what;
      const SequenceSpan& sequence = spans[static_cast<size_t>(block.sequence)];
      ASSERT_EQ(block.split_begin, firstSplit(sequence, block.row_begin, window)) << what;
      ASSERT_EQ(block.split_end, lastSplit(sequence, block.row_end - 1) + 1) << what;
      next += int64_t{block.row_end - block.row_begin} * group * kv_heads * (block.split_end - block.split_begin);
      any_shared = true;
    }
    ASSERT_LE(next, attentionPartials(threads)) << what;
    for (const AttentionItem& item : plan.items) {
      const SequenceSpan& sequence = spans[static_cast<size_t>(item.sequence)];
      ASSERT_EQ(item.block_begin, firstSplit(sequence, item.row_begin, window)) << what;
      ASSERT_EQ(item.block_end, lastSplit(sequence, item.row_end - 1) + 1) << what;
      const bool whole = item.split_begin == item.block_begin && item.split_end == item.block_end;
      any_refused |= whole && threads > 1 && item.split_end > 100;
      ASSERT_TRUE(item.partial >= 0 || whole) << what;
    }
  }
  EXPECT_TRUE(any_shared);
  EXPECT_TRUE(any_refused);
}

TEST(AttentionPlanTest, OneLongSequenceIsSharedOutAndEvenOnesAreNot) {
  const std::vector<int32_t> tokens(8);
  AttentionPlan plan;
  const std::vector<SequenceSpan> one = {{0, 1, 8191, {}}};
  planAttention({std::span(tokens).first(1), one, {}}, {8, 1}, 4, plan);
  EXPECT_EQ(plan.items.size(), 16u);
  EXPECT_EQ(plan.shared.size(), 1u);
  planAttention({std::span(tokens).first(1), one, {}}, {8, 1}, 1, plan);
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_TRUE(plan.shared.empty());
  std::vector<SequenceSpan> even;
  for (int32_t s = 0; s < 8; ++s) even.push_back({s, 1, 8191, {}});
  planAttention({tokens, even, {}}, {8, 4}, 2, plan);
  EXPECT_EQ(plan.items.size(), 8u);
  EXPECT_TRUE(plan.shared.empty());
}

}  // namespace
}  // namespace chorus
