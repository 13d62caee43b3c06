#include "runtime/row_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

namespace chorus {
namespace {

RequestView generating(std::optional<uint64_t> client, int32_t weight = 1) {
  RequestView r;
  r.num_tokens = 10;
  r.num_cached = 9;
  r.running = r.generating = true;
  r.client = client;
  r.weight = weight;
  return r;
}

// Plays steps in which `rows` sequences may generate.
struct Player {
  std::vector<RequestView> requests;
  std::vector<int> rows;  // of each request
  RowShares shares;
  uint64_t turn = 0;

  void add(int count, const RequestView& request) {
    requests.insert(requests.end(), static_cast<size_t>(count), request);
  }
  Player& play(int steps, int64_t most) {
    rows.resize(requests.size());
    for (int step = 0; step < steps; ++step) {
      for (RequestView& r : requests) r.skipped = false;
      shares.limit(requests, most, turn++);
      for (size_t i = 0; i < requests.size(); ++i) {
        rows[i] += requests[i].skipped ? 0 : 1;
        requests[i].steps_without_row = requests[i].skipped ? requests[i].steps_without_row + 1 : 0;
      }
    }
    return *this;
  }
  int rowsOf(std::optional<uint64_t> client) const {
    int sum = 0;
    for (size_t i = 0; i < requests.size(); ++i) sum += requests[i].client == client ? rows[i] : 0;
    return sum;
  }
};

TEST(RowShares, AStepWithFewRowsHasAllOfThem) {
  Player player;
  player.add(16, generating(1));
  player.add(1, generating(2));
  player.play(10, 17);
  for (const int rows : player.rows) EXPECT_EQ(rows, 10);
}

TEST(RowShares, WhoHasFewSequencesLosesNoStepToOneWithMany) {
  Player player;
  player.add(16, generating(1));
  player.add(1, generating(2));
  player.add(1, generating(std::nullopt));
  player.play(160, 7);
  EXPECT_EQ(player.rowsOf(2), 160);
  EXPECT_EQ(player.rowsOf(std::nullopt), 160);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(player.rows[i], 50, 1) << "its sequences take turns";
}

TEST(RowShares, ClientsWithManySequencesShareEqually) {
  for (const int clients : {2, 3, 5}) {
    for (const int sequences : {3, 9, 16}) {
      for (int most = clients; most < clients * sequences; ++most) {
        Player player;
        for (int client = clients; client > 0; --client) player.add(sequences, generating(client));
        constexpr int kSteps = 300;
        player.play(kSteps, most);
        for (int client = 1; client <= clients; ++client)
          EXPECT_NEAR(player.rowsOf(client), static_cast<double>(kSteps * most) / clients, 2)
              << clients << " " << sequences << " " << most;
        const double of_sequence = kSteps * most / (static_cast<double>(clients) * sequences);
        const auto [fewest, most_of_one] = std::ranges::minmax(player.rows);
        EXPECT_GT(fewest, 0.8 * of_sequence) << clients << " " << sequences << " " << most;
        EXPECT_LT(most_of_one, 1.2 * of_sequence) << clients << " " << sequences << " " << most;
      }
    }
  }
}

TEST(RowShares, RandomSequencesGetMaxMinShares) {
  std::mt19937 random(1);
  const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 200; ++round) {
    Player player;
    const int clients = from(2, 6);
    std::vector<int> sequences;
    for (int client = 0; client < clients; ++client) {
      sequences.push_back(from(1, 12));
      player.add(sequences.back(), generating(client));
    }
    const int all = static_cast<int>(player.requests.size()), most = from(std::min(clients, all), all);
    constexpr int kSteps = 200;
    player.play(kSteps, most);
    EXPECT_EQ(std::accumulate(player.rows.begin(), player.rows.end(), 0), kSteps * std::min(all, most));
    double left = most;
    std::vector<int> order(sequences);
    std::ranges::sort(order);
    double level = 0;  // the share of those that cannot have all that they want
    for (size_t i = 0; i < order.size(); ++i) {
      level = left / static_cast<double>(order.size() - i);
      if (order[i] > level) break;
      left -= order[i];
    }
    for (int client = 0; client < clients; ++client) {
      const double share = std::min<double>(sequences[static_cast<size_t>(client)], most == all ? 12 : level);
      EXPECT_NEAR(player.rowsOf(client), kSteps * share, 3) << round << " " << client;
    }
  }
}

TEST(RowShares, SharesAreInProportionToTheWeights) {
  Player player;
  player.add(16, generating(1, 3));
  player.add(16, generating(2));
  player.play(100, 8);
  EXPECT_EQ(player.rowsOf(1), 600);
  EXPECT_EQ(player.rowsOf(2), 200);
}

TEST(RowShares, OnlyGeneratingSequencesAreCountedAndSkipped) {
  RequestView context = generating(1);
  context.generating = false;
  RequestView waiting = context;
  waiting.running = false;
  RequestView skipped = generating(1);
  skipped.skipped = true;
  std::vector requests{skipped, generating(1), context, generating(2), waiting, generating(2)};
  RowShares shares;
  shares.limit(requests, 3, 0);
  EXPECT_EQ(std::ranges::count(requests, true, &RequestView::skipped), 1) << "three generate, which is allowed";
  shares.limit(requests, 2, 0);
  EXPECT_TRUE(requests[0].skipped);
  EXPECT_FALSE(requests[1].skipped);
  EXPECT_FALSE(requests[2].skipped);
  EXPECT_FALSE(requests[3].skipped);
  EXPECT_FALSE(requests[4].skipped);
  EXPECT_TRUE(requests[5].skipped);
}

TEST(RowShares, ClientsWithEquallyManySlowEachOtherEqually) {
  using Clock = RowShares::Clock;
  constexpr auto kAway = RowShares::kAway;
  const auto now = Clock::now();
  RowShares shares;
  std::vector<RequestView> equal(12, generating(1)), unequal;
  equal.resize(24, generating(2));
  EXPECT_EQ(shares.begin({}, 7, now), 7);
  EXPECT_EQ(shares.begin(std::span(equal).first(1), 7, now), 7) << "a client alone says nothing about others";
  EXPECT_EQ(shares.begin(equal, 7, now), 24);
  EXPECT_EQ(shares.begin(equal, 30, now), 30);
  equal.resize(20, generating(2));
  EXPECT_EQ(shares.begin(equal, 7, now), 16) << "twice the eight of the second one";
  unequal = equal;
  RequestView waiting = generating(3);
  waiting.running = waiting.generating = false;
  unequal.push_back(waiting);
  EXPECT_EQ(shares.begin(unequal, 2, now), 3) << "a request that waits counts too";
  EXPECT_EQ(shares.begin(equal, 2, now + kAway), 3) << "the third client is expected to come back";
  EXPECT_EQ(shares.begin(equal, 2, now + kAway + std::chrono::seconds(1)), 16);
  const auto later = now + std::chrono::minutes(1);
  unequal.back().adapter_ready = false;
  EXPECT_EQ(shares.begin(unequal, 2, later), 16) << "a request that cannot start yet does not count";
  const auto much_later = now + std::chrono::minutes(2);
  for (RequestView& r : equal) r.weight = r.client == 1u ? 3 : 2;
  EXPECT_EQ(shares.begin(equal, 2, much_later), 20) << "the sum of the weights times four sequences for each";
}

}  // namespace
}  // namespace chorus
