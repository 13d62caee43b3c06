#include "server/http/body_memory.h"

#include <gtest/gtest.h>

namespace chorus::server {
namespace {

const BodyMemory::Time kStart{std::chrono::hours(1)};

TEST(BodyMemoryTest, ABodyIsTakenFromTheMemoryOfAnEarlierOne) {
  BodyMemory memory;
  std::string first = memory.take(100'000);
  EXPECT_TRUE(first.empty());
  EXPECT_GE(first.capacity(), 100'000u);
  first.assign(100'000, 'x');
  const char* const place = first.data();
  memory.give(std::move(first), kStart);
  std::string larger = memory.take(1'000'010);
  EXPECT_NE(larger.data(), place) << "the kept memory is too small";
  std::string again = memory.take(50'000);
  EXPECT_EQ(again.data(), place);
  EXPECT_TRUE(again.empty());
  EXPECT_NE(memory.take(50'000).data(), place) << "it is in use";
}

TEST(BodyMemoryTest, TheLargestBodyWithinTheLimitIsKept) {
  BodyMemory memory;
  std::string small = memory.take(1'000), large = memory.take(2'000);
  const char* const place = large.data();
  memory.give(std::move(large), kStart);
  memory.give(std::move(small), kStart);
  std::string kept = memory.take(1'000);
  EXPECT_EQ(kept.data(), place);
  memory.give(std::move(kept), kStart);
  memory.give(memory.take(BodyMemory::kMost + 1), kStart);
  EXPECT_LT(memory.take(1).capacity(), BodyMemory::kMost);
}

TEST(BodyMemoryTest, UnusedMemoryIsFreed) {
  BodyMemory memory;
  memory.give(memory.take(100'000), kStart);
  memory.freeUnused(kStart + BodyMemory::kLongest - std::chrono::seconds(1));
  std::string kept = memory.take(1);
  EXPECT_GE(kept.capacity(), 100'000u);
  memory.give(std::move(kept), kStart + std::chrono::seconds(5));
  memory.freeUnused(kStart + BodyMemory::kLongest);
  EXPECT_GE((kept = memory.take(1)).capacity(), 100'000u) << "it was used meanwhile";
  memory.give(std::move(kept), kStart);
  memory.freeUnused(kStart + BodyMemory::kLongest);
  EXPECT_LT(memory.take(1).capacity(), 100'000u);
}

}  // namespace
}  // namespace chorus::server
