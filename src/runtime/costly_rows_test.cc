#include "runtime/costly_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace chorus {
namespace {

RequestView generating(std::optional<uint64_t> client, uint64_t adapter = 0, double size = 0) {
  RequestView r;
  r.num_tokens = 10;
  r.num_cached = 9;
  r.running = r.generating = true;
  r.client = client;
  r.adapter = adapter;
  r.adapter_size = size;
  return r;
}
RequestView waiting(std::optional<uint64_t> client, uint64_t adapter, double size) {
  RequestView r = generating(client, adapter, size);
  r.running = r.generating = false;
  r.num_cached = 0;
  return r;
}

constexpr StepPrices kPrices{.context = 0.05, .scored = 0.1};
constexpr int kMostOwed = 64;
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// Plays steps: every request that is not skipped gets one row, or all tokens of its context.
struct Player {
  std::vector<RequestView> requests;
  CostlyRows costly;
  CostlyRows::Clock::time_point now;
  std::vector<int> rows;  // of each request
  double costs = 0;       // of all steps, of costly rows
  double most = 0;        // of one step
  double rest = 0;        // reads of all other rows of all steps

  void begin() {
    for (RequestView& r : requests) {
      r.skipped = false;
      r.max_chunk = std::numeric_limits<int32_t>::max();
    }
    costly.beginLimited(requests, kPrices, 64, std::numeric_limits<int64_t>::max(), now);
  }
  bool prompts_get_tokens = true;
  // Only the first `runnable` requests can run.
  void step(size_t runnable = kAll) {
    rows.resize(requests.size());
    begin();
    SchedulerPlan plan;
    int64_t generated = 0, prompt = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestView& r = requests[i];
      ++r.steps_without_row;
      if (r.skipped || i >= runnable || (!r.generating && !prompts_get_tokens)) continue;
      r.steps_without_row = 0;
      const int32_t tokens = r.generating ? 1 : std::min(r.num_tokens - r.num_cached, r.max_chunk);
      plan.sequences.push_back({static_cast<int32_t>(i), tokens, !r.generating, true});
      ++rows[i];
      if (r.generating) ++generated;
      if (!r.generating && r.num_cached < r.scored_from) prompt += tokens;
    }
    rest += readsOf(std::max<int64_t>(generated, 1)) + kPrices.context * static_cast<double>(prompt);
    double costs_of_step = 0;
    for (const auto& cost : costly.count(requests, plan, kPrices)) costs_of_step += cost.total();
    costs += costs_of_step;
    most = std::max(most, costs_of_step);
  }
  Player& play(int steps, size_t runnable = kAll) {
    for (int i = 0; i < steps; ++i) step(runnable);
    return *this;
  }
};

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

TEST(CostlyRows, WhoAsksForLessThanItsShareStartsAtOnce) {
  Player player;
  player.requests.push_back(generating(0));
  for (uint64_t client = 1; client <= 4; ++client) player.requests.push_back(waiting(client, client, 0.5));
  player.requests.push_back(waiting(5, 5, 0.1));
  player.play(1000);
  EXPECT_EQ(player.rows.back(), 1000);
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

TEST(CostlyRows, NewClientsDoNotGetAroundTheLimit) {
  Player player;
  player.requests = {generating(1)};
  player.requests.resize(64);
  uint64_t client = 10;
  for (int step = 0; step < 1000; ++step) {
    // Sixty-three new clients in each step, each with a composition of its own.
    for (size_t i = 1; i < 64; ++i) player.requests[i] = waiting(client + i, client + i, 0.5);
    client += 63;
    player.step();
  }
  EXPECT_LT(player.costs / player.rest, 1.1);
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

TEST(CostlyRows, ARequestThatWaitsStartsAlthoughItsClientHasManyRunning) {
  Player player;
  player.requests = {generating(1)};
  for (uint64_t i = 0; i < 40; ++i) player.requests.push_back(generating(2, i, 0.5));
  player.play(100);
  player.requests.push_back(waiting(2, 99, 0.5));
  player.play(20);
  EXPECT_GE(player.rows.back(), 1);
}

// Requests that wait for blocks and never start take nothing from those that run, be they of the same client or not.
TEST(CostlyRows, RequestsThatCannotStartTakeNoTurnsFromThoseThatRun) {
  for (const uint64_t client : {2, 3}) {
    Player player;
    player.requests = {generating(1), generating(2, 2, 3)};
    for (uint64_t i = 3; i < 12; ++i) player.requests.push_back(waiting(client, i, 3));
    player.play(300, 2);
    EXPECT_NEAR(player.costs / player.rest, 1, 0.05) << client;
  }
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

TEST(CostlyRows, AClientThatBeginsDoesNotKeepTheOthersWaiting) {
  Player player;
  player.requests = {generating(1), generating(2, 2, 0.1)};
  for (uint64_t i = 10; i < 30; ++i) player.requests.push_back(generating(3, i, 0.5));
  player.play(5000);
  for (uint64_t i = 30; i < 50; ++i) player.requests.push_back(generating(4, i, 0.5));
  player.rows.clear();
  player.play(100);
  const int of_3 = std::accumulate(player.rows.begin() + 2, player.rows.begin() + 22, 0);
  const int of_4 = std::accumulate(player.rows.begin() + 22, player.rows.end(), 0);
  EXPECT_NEAR(of_3, of_4, 0.1 * of_3);
}

// A client's request of a large composition runs, and others of the same composition wait: they do not make it cheaper.
TEST(CostlyRows, RequestsThatWaitDoNotMakeARowCheap) {
  Player player;
  for (uint64_t i = 0; i < 8; ++i) player.requests.push_back(generating(1));
  player.requests.push_back(generating(2, 2, 6));
  player.requests.push_back(generating(3, 3, 1.5));
  for (int i = 0; i < 12; ++i) player.requests.push_back(waiting(2, 2, 6));
  player.play(2000, 10);
  EXPECT_NEAR(player.costs / player.rest, 1, 0.05);
  EXPECT_GT(player.rows[9] * 1.5, 0.8 * player.rows[8] * 6);
}

TEST(CostlyRows, RowsOfOneCompositionRunTogether) {
  Player player;
  player.requests = {generating(1)};
  for (int i = 0; i < 40; ++i) player.requests.push_back(generating(2, 2, 8));
  player.play(500);
  EXPECT_EQ(player.rows[1], player.rows[40]);
  EXPECT_GT(player.rows[1], 15);
}

// Clients of equal loads whose requests are short: each start costs the same, so the same client could always meet the
// steps in which nothing is owed.
TEST(CostlyRows, ClientsOfEqualLoadsStartEquallyOften) {
  for (const size_t clients : {2, 3, 5}) {
    for (const double size : {0.2, 1.5, 8.0}) {
      Player player;
      player.requests = {generating(0)};
      for (uint64_t client = 1; client <= clients; ++client) player.requests.push_back(waiting(client, client, size));
      player.play(6000);
      const auto [least, most] = std::minmax_element(player.rows.begin() + 1, player.rows.end());
      EXPECT_GT(*least, 0.8 * *most) << clients << " clients, size " << size;
    }
  }
}

// Client 2 runs one large composition. Client 3 keeps starting others.
TEST(CostlyRows, StartsTakeNoMoreThanTheirShare) {
  for (const double size : {1.5, 8.0}) {
    Player player;
    player.requests = {generating(1), generating(2, 2, size), waiting(3, 3, size)};
    player.requests[2].num_tokens = 50;
    player.play(5000);
    const double of_starts = player.rows[2] * size * readsOf(50);
    EXPECT_GT(player.rows[1] * size, 0.7 * of_starts) << size;
  }
}

TEST(CostlyRows, ADemandJustAboveTheShareIsHardlyLimited) {
  Player player;
  player.requests = {generating(1), generating(2, 2, 0.55)};
  for (uint64_t i = 3; i < 20; ++i) player.requests.push_back(generating(3, i, 3));
  player.play(2000);
  EXPECT_GT(player.rows[1], 1400);
}

// The prompt of a large composition is chosen but gets no tokens, because other prompts do.
TEST(CostlyRows, RowsDoNotWaitForPromptsWithoutTokens) {
  for (const double size : {0.1, 0.4}) {
    Player player;
    RequestView prompt = waiting(3, 3, 1);
    prompt.running = true;
    prompt.num_tokens = 4096;
    player.requests = {generating(1), generating(2, 2, size), prompt};
    player.prompts_get_tokens = false;
    player.play(500);
    EXPECT_GE(player.rows[1], 490) << size;
  }
}

TEST(CostlyRows, AsManyShortRequestsStartAsFitIntoTheLimit) {
  Player player;
  for (uint64_t i = 0; i < 17; ++i) player.requests.push_back(generating(1));
  for (uint64_t i = 0; i < 20; ++i) player.requests.push_back(waiting(2, 100 + i, 0.15));
  player.play(300);
  const int starts = std::accumulate(player.rows.begin() + 17, player.rows.end(), 0);
  EXPECT_GT(starts * 0.15 * readsOf(10) / 300, 0.8 * readsOf(17));
}

// Prompts of 200 tokens: their chunks of 64 tokens fit into the limit together, the whole prompts do not.
TEST(CostlyRows, APromptThatMayNotBeChunkedCostsAllItsTokens) {
  for (const bool chunked : {true, false}) {
    for (const bool was_paused : {false, true}) {
      Player player{.costly = CostlyRows({}, chunked)};
      for (int i = 0; i < 80; ++i) player.requests.push_back(generating(1));
      for (uint64_t i = 1; i <= 2; ++i) {
        player.requests.push_back(waiting(2, i, 0.5));
        player.requests.back().num_tokens = 200;
        player.requests.back().was_paused = was_paused;
      }
      player.begin();
      const int starts = (player.requests[80].skipped ? 0 : 1) + (player.requests[81].skipped ? 0 : 1);
      EXPECT_EQ(starts, chunked || was_paused ? 2 : 1) << "a paused sequence is chunked anyway";
    }
  }
}

// A request that waits for a block of its own client's context is offered no start, so that another one may start.
TEST(CostlyRows, WhoWaitsForABlockOfItsOwnContextTakesNoTurn) {
  for (const uint64_t client : {2, 3}) {
    Player player;
    player.requests = {generating(1)};
    for (uint64_t i = 0; i < 3; ++i) {
      player.requests.push_back(waiting(client, 10 + i, 0.1));
      player.requests.back().running = true;
      player.requests.back().next_block = 9 - i;
    }
    for (const uint64_t block : {8, 5}) {
      player.requests.push_back(waiting(2, 20 + block, 3));
      player.requests.back().next_block = block;
      player.requests.back().can_reuse_next = true;
    }
    player.begin();
    EXPECT_EQ(player.requests[4].skipped, client == 2) << "block 8 is computed";
    EXPECT_EQ(player.requests[5].skipped, client != 2) << "block 5 is not";
  }
}

// Others wait for blocks all the time. They are offered a start as well, because they may pause others.
TEST(CostlyRows, ThoseThatCannotStartTakeNoStartsFromOthers) {
  for (const size_t others : {1, 3, 15}) {
    Player player;
    player.requests = {generating(1), waiting(2, 2, 2)};
    for (uint64_t i = 0; i < others; ++i) {
      player.requests.push_back(waiting(10 + i, 10 + i, 2));
      player.requests.back().has_place = false;
    }
    std::vector<int> offered(others);
    for (int step = 0; step < 1000; ++step) {
      player.step(2);
      for (size_t i = 0; i < others; ++i) offered[i] += player.requests[2 + i].skipped ? 0 : 1;
    }
    EXPECT_GT(player.costs / player.rest, 0.9) << others;
    EXPECT_GT(*std::min_element(offered.begin(), offered.end()), 10) << others;
  }
}

TEST(CostlyRows, PromptsWithLogProbabilitiesCostTheirRowsOfLogits) {
  RequestView scored = waiting(2, 0, 0);
  scored.running = true;
  scored.num_tokens = 32;
  scored.scored_from = 64;
  Player player;
  player.requests = {generating(1), scored};
  player.play(10);
  EXPECT_EQ(player.rows[1], 10) << "these tokens have no log probabilities";
  player.requests[1].scored_from = 0;
  player.costs = player.rest = 0;
  player.rows[1] = 0;
  player.play(1000);
  EXPECT_NEAR(player.costs / player.rest, 1, 0.02);
  EXPECT_NEAR(player.costs, player.rows[1] * 32 * 0.1, 1e-6) << "and these have";
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
