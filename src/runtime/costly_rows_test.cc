// CostlyRows: which running requests get rows, and the chunks of long contexts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/testing/costly_rows_player.h"

namespace chorus {
namespace {

using Player = testing::CostlyRowsPlayer;
using testing::generating;
using testing::kPrices;
using testing::waiting;

constexpr int kMostOwed = 64;

TEST(AdapterCosts, TheRowsOfAnAdapterShareItsCost) {
  AdapterCosts costs;
  costs.begin(3);
  costs.add(1, 1);
  costs.add(2, 16);
  costs.add(1, 16);
  costs.add(2, 1);
  EXPECT_DOUBLE_EQ(costs.cost(1, 0.5, 16) + costs.cost(1, 0.5, 1), 0.5 * 2);
  EXPECT_DOUBLE_EQ(costs.cost(2, 1, 17), 2);
  EXPECT_EQ(costs.cost(3, 1, 1), 0);
  costs.begin(3);
  EXPECT_EQ(costs.cost(1, 1, 1), 0);
}

TEST(CostlyRows, CompositionsTakeAsLongAsTheRest) {
  Player player;
  player.requests.push_back(generating(1));
  for (uint64_t i = 1; i <= 63; ++i) player.requests.push_back(generating(2, i, 0.5));
  player.play(1000);
  EXPECT_EQ(player.rows[0], 1000) << "the other client's sequence has a row in every step";
  EXPECT_NEAR(player.costs / player.rest, 1, 0.02);
  const auto [least, most] = std::minmax_element(player.rows.begin() + 1, player.rows.end());
  EXPECT_LE(*most - *least, *least / 8) << "its sequences take turns";
}

TEST(CostlyRows, UsualAdaptersAreNeverSkipped) {
  for (const double size : {0.004, 0.016, 1 / kRowsPerRead}) {
    Player player;
    player.requests.push_back(generating(0));
    for (uint64_t i = 1; i <= 64; ++i) player.requests.push_back(generating(1 + i % 3, i, size));
    player.requests.push_back(waiting(9, 999, 3));
    player.play(100).rows.pop_back();
    for (const int rows : player.rows) EXPECT_EQ(rows, 100) << size;
  }
}

TEST(CostlyRows, RowsOfOneLargeAdapterCostLittleMoreThanOne) {
  Player player;
  player.requests.push_back(generating(1));
  for (int i = 0; i < 63; ++i) player.requests.push_back(generating(2, 7, 0.9));
  for (const int rows : player.play(100).rows) EXPECT_EQ(rows, 100);
}

TEST(CostlyRows, ClientsOfEqualDemandsAreNotLimited) {
  Player player;
  for (uint64_t i = 1; i <= 32; ++i) player.requests.push_back(generating(i % 4, i, 0.5));
  for (const int rows : player.play(100).rows) EXPECT_EQ(rows, 100);
  player.requests.push_back(generating(5, 99, 0.5));
  player.play(100);
  EXPECT_EQ(player.rows.back(), 100) << "who asks for the least always gets it";
  EXPECT_LT(player.rows.front(), 200);
}

// Client 1 has many requests whose contexts grow, and cannot use all that it is allowed: what it saves gives it no
// right before a client that asks for less than its share.
TEST(CostlyRows, WhoAsksForLessThanItsShareWaitsForNobodysSavings) {
  for (const double size : {0.018, 0.07, 0.2}) {
    Player player;
    player.costly = CostlyRows(KvSizes({0}, 3e-4));
    for (uint64_t i = 1; i <= 64; ++i) player.requests.push_back(generating(1, i % 40, size));
    player.requests.push_back(generating(2, 99, 0.18));
    int longest = 0;
    for (int step = 0; step < 5000; ++step) {
      player.play(1);
      for (size_t i = 0; i + 1 < player.requests.size(); ++i) {
        RequestView& r = player.requests[i];
        if (r.steps_without_row > 0) continue;
        r = r.num_tokens < 900 ? r : generating(1, r.adapter, size);
        r.num_cached = r.num_tokens++;
      }
      longest = std::max(longest, player.requests.back().steps_without_row);
    }
    EXPECT_LE(longest, 1) << size;
  }
}

// Client 1 has one request with a cost, client 2 has many.
TEST(CostlyRows, TimeIsSharedMaxMinAndByWeight) {
  for (const int32_t weight : {1, 3}) {
    Player player;
    player.requests = {generating(3), generating(1, 1, 0.4)};
    for (uint64_t i = 2; i <= 40; ++i) player.requests.push_back(generating(2, i, 2));
    for (uint64_t i = 41; i <= 60; ++i) player.requests.push_back(generating(4, i, 0.5));
    for (RequestView& r : player.requests) r.weight = r.client == 4 ? weight : 1;
    player.play(3000);
    const auto served = [&](size_t begin, size_t end, double size) {
      return size *
             std::accumulate(player.rows.begin() + static_cast<ptrdiff_t>(begin),
                             player.rows.begin() + static_cast<ptrdiff_t>(end), 0) /
             3000;
    };
    const double of_2 = served(2, 41, 2), of_4 = served(41, 61, 0.5);
    EXPECT_NEAR(of_4 / of_2, weight, 0.1);
    EXPECT_GT(served(1, 2, 0.4), 0.5 * of_2) << "it can take one row a step, and none in steps that pay what is owed";
  }
}

TEST(CostlyRows, ClientsThatLeftTakeNothingFromThosePresent) {
  Player player;
  player.requests = {generating(1), generating(2, 2, 0.5)};
  for (uint64_t client = 100; client < 2000; ++client) player.requests.push_back(waiting(client, client, 0.5));
  player.play(3);
  player.requests.resize(2);
  player.play(300);
  player.rows.assign(2, 0);
  player.play(100);
  EXPECT_EQ(player.rows[1], 100);
}

TEST(CostlyRows, SomebodyRunsOnceWhatIsOwedIsForgiven) {
  Player player;
  player.requests = {generating(1, 1, 50), generating(2, 2, 20)};
  player.play(1);
  player.requests.push_back(waiting(3, 0, 0));
  player.begin();
  ASSERT_TRUE(player.requests[0].skipped && player.requests[1].skipped);
  player.costly.forgive();
  player.begin();
  EXPECT_NE(player.requests[0].skipped, player.requests[1].skipped);
}

TEST(CostlyRows, WithoutLimitsNothingIsOwed) {
  Player player;
  player.requests = {generating(1, 1, 50), generating(2)};
  player.play(1);
  ASSERT_EQ(player.costs, 50);
  player.begin();
  ASSERT_TRUE(player.requests[0].skipped);
  player.costly.beginUnlimited(player.requests.size());
  SchedulerPlan plan;
  plan.sequences.push_back({0, 1, false, true});
  EXPECT_EQ(player.costly.count(player.requests, plan, kPrices)[0].adapters, 50) << "it still costs";
  player.begin();
  EXPECT_FALSE(player.requests[0].skipped);
}

TEST(CostlyRows, WhatIsOwedIsBounded) {
  Player player;
  player.requests = {generating(1), waiting(2, 2, 4)};
  player.requests[1].num_tokens = 8192;
  player.play(1);
  player.requests[1] = generating(2, 2, 4);
  player.play(static_cast<int>(kMostOwed) + 4);
  EXPECT_GT(player.rows[1], 1);
}

// Two heavy clients slow a third one that is away between its requests.
TEST(CostlyRows, AClientThatIsAwayIsExpectedBack) {
  const auto heavy = [] {
    std::vector<RequestView> requests;
    for (uint64_t i = 1; i <= 32; ++i) requests.push_back(generating(1 + i % 2, i, 0.5));
    return requests;
  };
  Player player;
  player.requests = heavy();
  player.play(100);
  EXPECT_NEAR(player.costs / 100, 16, 0.1) << "nobody else is there";
  player.requests.push_back(generating(3));
  player.play(1);
  player.requests = heavy();
  player.rest = player.costs = 0;
  player.play(100);
  EXPECT_LT(player.costs / player.rest, 1.1);
  player.now += CostlyRows::kAway + std::chrono::seconds(1);
  player.costs = 0;
  player.play(100);
  EXPECT_NEAR(player.costs / 100, 16, 0.1);
}

// A neighbour with a composition beside contexts of large ones.
TEST(CostlyRows, AClientOfSmallDemandNeverWaitsForWhatOthersOwe) {
  Player player;
  player.requests = {generating(1), generating(2, 2, 0.4)};
  for (uint64_t i = 3; i < 20; ++i) player.requests.push_back(waiting(3, i, 3));
  player.play(500);
  EXPECT_EQ(player.rows[1], 500);
}

TEST(CostlyRows, RowsOfOneCompositionRunTogether) {
  Player player;
  player.requests = {generating(1)};
  for (int i = 0; i < 40; ++i) player.requests.push_back(generating(2, 2, 8));
  player.play(500);
  EXPECT_EQ(player.rows[1], player.rows[40]);
  EXPECT_GT(player.rows[1], 15);
}

TEST(CostlyRows, ADemandJustAboveTheShareIsHardlyLimited) {
  Player player;
  player.requests = {generating(1), generating(2, 2, 0.55)};
  for (uint64_t i = 3; i < 20; ++i) player.requests.push_back(generating(3, i, 3));
  player.play(2000);
  EXPECT_GT(player.rows[1], 1400);
}

// Attention over 10,000 tokens takes 3 reads.
CostlyRows withAttention(const std::vector<int32_t>& windows = {0}) { return CostlyRows(KvSizes(windows, 3e-4)); }
RequestView longRow(std::optional<uint64_t> client, int32_t tokens = 10'000, uint64_t adapter = 0, double size = 0) {
  RequestView r = generating(client, adapter, size);
  r.num_tokens = tokens;
  r.num_cached = tokens - 1;
  return r;
}

TEST(CostlyRows, RowsWithLongContextsTakeAsLongAsTheRest) {
  Player player{.costly = withAttention()};
  player.requests = {generating(1)};
  for (int i = 0; i < 63; ++i) player.requests.push_back(longRow(2));
  player.play(1000);
  EXPECT_EQ(player.rows[0], 1000) << "the other client's sequence has a row in every step";
  EXPECT_NEAR(player.costs / player.rest, 1, 0.02);
  EXPECT_LE(player.most, 3.1) << "and never waits for more than one of them";
  const auto [least, most] = std::minmax_element(player.rows.begin() + 1, player.rows.end());
  EXPECT_LE(*most - *least, 1) << "they take turns";
}

TEST(CostlyRows, RowsWithShortContextsOrWindowsAreNeverSkipped) {
  for (const int32_t tokens : {200, 10'000}) {
    Player player{.costly = tokens == 200 ? withAttention() : withAttention({128, 64})};
    player.requests = {generating(1)};
    for (int i = 0; i < 63; ++i) player.requests.push_back(longRow(2, tokens));
    for (const int rows : player.play(100).rows) EXPECT_EQ(rows, 100) << tokens;
  }
}

TEST(CostlyRows, ClientsOfEqualContextsAreNotLimited) {
  Player player{.costly = withAttention()};
  for (uint64_t i = 0; i < 32; ++i) player.requests.push_back(longRow(i % 4));
  for (const int rows : player.play(100).rows) EXPECT_EQ(rows, 100);
}

// The rows of an adapter are read together, but not so many of them that their attention takes most of the time.
TEST(CostlyRows, LongContextsOfOneLargeAdapterTakeTurns) {
  Player player{.costly = withAttention()};
  player.requests = {generating(1)};
  for (int i = 0; i < 40; ++i) player.requests.push_back(longRow(2, 10'000, 7, 8));
  player.play(2000);
  EXPECT_LE(player.most, 8 * readsOf(2) + 2 * 3.1);
  EXPECT_GE(player.rows[40], 6);
  EXPECT_NEAR(player.rows[1], player.rows[40], 2);
}

TEST(CostlyRows, ChunksOfLongContextsAreSmall) {
  for (const bool running : {false, true}) {
    Player player{.costly = withAttention()};
    RequestView context = waiting(2, 0, 0);
    context.num_tokens = 10'000;
    context.num_cached = 8000;
    context.running = running;
    player.requests = {generating(1), context};
    player.step();
    EXPECT_EQ(player.requests[1].max_chunk, 16);
    EXPECT_NEAR(player.most, 8008 * 3e-4 * readsOf(16), 0.01);
    player.play(999);
    EXPECT_NEAR(player.costs / player.rest, 1, 0.1);
    player.requests[1].num_cached = 0;
    player.begin();
    EXPECT_GT(player.requests[1].max_chunk, 1000) << "the first tokens see few others";
  }
}

TEST(CostlyRows, WithoutLimitsAttentionCostsAndNothingIsSkipped) {
  Player player{.costly = withAttention({0, 1000})};
  player.requests = {longRow(1), longRow(1)};
  player.costly.beginUnlimited(player.requests.size());
  SchedulerPlan plan;
  for (int32_t i = 0; i < 2; ++i) plan.sequences.push_back({i, 1, false, true});
  for (const auto& cost : player.costly.count(player.requests, plan, {.attention = 2})) {
    EXPECT_DOUBLE_EQ(cost.total(), 2 * 11'000 * 3e-4);
  }
  EXPECT_FALSE(player.requests[0].skipped || player.requests[1].skipped);
}

}  // namespace
}  // namespace chorus
