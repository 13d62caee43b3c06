#include "base/random_bits.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>
#include <vector>

namespace chorus {
namespace {

// Two of 4000 true random numbers are equal with a probability of 4e-13.
TEST(RandomBitsTest, NoThreadRepeatsANumber) {
  constexpr size_t kThreads = 4, kEach = 1000;
  std::vector<std::vector<uint64_t>> drawn(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::vector<uint64_t>& own : drawn) {
      threads.emplace_back([&own] {
        for (size_t i = 0; i < kEach; ++i) own.push_back(randomBits());
      });
    }
  }
  std::set<uint64_t> all;
  for (const std::vector<uint64_t>& own : drawn) all.insert(own.begin(), own.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
}

// Each of the 64 bits is set in half of 4096 numbers: a deviation of 8 standard deviations (32) has a probability of
// 1e-15.
TEST(RandomBitsTest, EveryBitIsSetHalfTheTime) {
  std::vector<int> ones(64);
  for (int i = 0; i < 4096; ++i) {
    const uint64_t bits = randomBits();
    for (int bit = 0; bit < 64; ++bit) ones[static_cast<size_t>(bit)] += static_cast<int>(bits >> bit & 1);
  }
  for (const int count : ones) EXPECT_NEAR(count, 2048, 8 * 32);
}

TEST(RandomBitsTest, AForkedProcessDrawsOtherNumbers) {
  randomBits();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const uint64_t bits = randomBits();
    _exit(write(ends[1], &bits, sizeof bits) == sizeof bits ? 0 : 1);
  }
  const uint64_t own = randomBits();
  uint64_t others = own;
  EXPECT_EQ(read(ends[0], &others, sizeof others), static_cast<ssize_t>(sizeof others));
  EXPECT_NE(others, own);
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace chorus
