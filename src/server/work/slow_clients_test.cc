#include "server/work/slow_clients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace chorus::server {
namespace {

constexpr uint64_t kClient = 7;

TEST(SlowClients, TheLatestTaskCounts) {
  SlowClients slow;
  EXPECT_FALSE(slow.contains(kClient));
  EXPECT_FALSE(slow.contains(0));
  slow.ended(kClient, true);
  EXPECT_FALSE(slow.contains(kClient));
  slow.ended(kClient, false);
  EXPECT_TRUE(slow.contains(kClient));
  EXPECT_FALSE(slow.contains(kClient + SlowClients::kCapacity)) << "another client of the same bucket";
  slow.ended(kClient, true);
  EXPECT_FALSE(slow.contains(kClient));
}

TEST(SlowClients, RemembersTensOfThousands) {
  SlowClients slow;
  std::mt19937_64 random(3);
  std::vector<uint64_t> clients(32768);
  for (uint64_t& client : clients) client = random();
  for (const uint64_t client : clients) slow.ended(client, false);
  EXPECT_GT(std::ranges::count_if(clients, [&](uint64_t client) { return slow.contains(client); }), 32768 - 32);
}

TEST(SlowClients, ThoseThatWereSlowLongestAgoAreForgotten) {
  SlowClients slow;
  for (uint64_t client = 0; client < 2 * SlowClients::kCapacity; ++client) {
    if (client % 1000 == 0) slow.ended(kClient, false);
    slow.ended(client, false);
  }
  EXPECT_TRUE(slow.contains(kClient)) << "it had slow tasks again and again";
  EXPECT_FALSE(slow.contains(kClient + 1));
  EXPECT_TRUE(slow.contains(2 * SlowClients::kCapacity - 1));
}

}  // namespace
}  // namespace chorus::server
