// CostlyRows: which waiting requests start.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/testing/costly_rows_player.h"

namespace chorus {
namespace {

using Player = testing::CostlyRowsPlayer;
using testing::generating;
using testing::waiting;

TEST(CostlyRows, WhoAsksForLessThanItsShareStartsAtOnce) {
  Player player;
  player.requests.push_back(generating(0));
  for (uint64_t client = 1; client <= 4; ++client) player.requests.push_back(waiting(client, client, 0.5));
  player.requests.push_back(waiting(5, 5, 0.1));
  player.play(1000);
  EXPECT_EQ(player.rows.back(), 1000);
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

}  // namespace
}  // namespace chorus
