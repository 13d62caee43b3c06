#include "server/work/fair_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace chorus::server {
namespace {

using Answer = FairQueue::Answer;

std::vector<uint64_t> drain(FairQueue& queue, size_t max_bytes = SIZE_MAX) {
  std::vector<uint64_t> order;
  while (const auto taken = queue.take({.max_bytes = max_bytes})) order.push_back(taken->id);
  return order;
}

TEST(FairQueue, ClientsTakeTurnsAndTheirSmallRequestsAreFirst) {
  FairQueue queue;
  queue.add(1, 7, 800);
  queue.add(2, 7, 500);
  queue.add(3, 7, 10);
  queue.add(4, 9, 9000);
  queue.add(5, 9, 20);
  EXPECT_EQ(drain(queue), (std::vector<uint64_t>{3, 5, 2, 4, 1}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_FALSE(queue.take({}));
}

TEST(FairQueue, NobodyWaitsForEver) {
  FairQueue queue;
  queue.add(1, 7, 1000);
  uint64_t id = 1;
  for (int i = 0; i < FairQueue::kOldestTurn; ++i) {
    queue.add(++id, 7, 1);
    queue.add(++id, 7, 1);
    if (queue.take({})->id == 1u) return;
  }
  FAIL() << "small tasks that keep coming hold up the large one";
}

TEST(FairQueue, AClientsBacklogDelaysAnotherClientByOneTask) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 500; ++id) queue.add(id, 7, 1);
  queue.take({});
  queue.add(501, 9, 1);
  EXPECT_NE(queue.take({})->id, 501u);
  EXPECT_EQ(queue.take({})->id, 501u);
}

TEST(FairQueue, OnlySmallRequestsAreChosenUnderALimitOfBytes) {
  FairQueue queue;
  queue.add(1, 7, 1000);
  queue.add(2, 9, 100);
  queue.add(3, 7, 50);
  EXPECT_EQ(drain(queue, 100), (std::vector<uint64_t>{3, 2}));
  EXPECT_FALSE(queue.take({.max_bytes = 100}));
  EXPECT_EQ(queue.take({})->id, 1u);
}

TEST(FairQueue, ClientsAtTheirLimitAreLeftOut) {
  FairQueue queue;
  queue.add(1, 7, 10);
  queue.add(2, 9, 20);
  const std::optional<uint64_t> running[] = {9, 7, std::nullopt, 7};
  EXPECT_EQ(queue.take({.running = running, .client_limit = 2})->id, 2u);
  EXPECT_FALSE(queue.take({.running = running, .client_limit = 2}));
  EXPECT_EQ(queue.take({.running = running, .client_limit = 3})->id, 1u);
}

TEST(FairQueue, SlowClientsCanBeLeftOut) {
  FairQueue queue;
  queue.add(1, 7, 10);
  queue.add(2, 9, 20);
  SlowClients slow;
  slow.ended(7, false);
  EXPECT_EQ(queue.take({.left_out = &slow})->id, 2u);
  EXPECT_FALSE(queue.take({.left_out = &slow}));
  EXPECT_EQ(queue.take({})->id, 1u);
}

TEST(FairQueue, LimitsAndRemoval) {
  FairQueue queue({.tasks = 4, .client_tasks = 3, .client_bytes = 100});
  EXPECT_EQ(queue.add(1, 7, 500), Answer::kAdded) << "the first may be larger than the limit";
  EXPECT_EQ(queue.add(2, 7, 1), Answer::kClientFull);
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  for (uint64_t id = 3; id < 6; ++id) EXPECT_EQ(queue.add(id, 7, 10), Answer::kAdded);
  EXPECT_EQ(queue.add(6, 7, 10), Answer::kClientFull);
  EXPECT_EQ(queue.add(7, 8, 10), Answer::kAdded);
  EXPECT_EQ(queue.add(8, 9, 10), Answer::kFull);
  EXPECT_EQ(queue.size(), 4u);
}

}  // namespace
}  // namespace chorus::server
