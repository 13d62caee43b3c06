#include "server/access/token_bucket.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace chorus::server {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

const TokenBucket::Time kStart{std::chrono::hours(100)};

TEST(TokenBucket, RefillsEvenly) {
  TokenBucket bucket(60, kStart);
  EXPECT_EQ(bucket.left(kStart), 60);
  EXPECT_EQ(bucket.untilFull(kStart), microseconds(0));
  bucket.charge(60, kStart);
  EXPECT_EQ(bucket.left(kStart), 0);
  EXPECT_EQ(bucket.until(1, kStart), seconds(1));
  EXPECT_EQ(bucket.untilFull(kStart), seconds(60));
  EXPECT_EQ(bucket.left(kStart + microseconds(999'999)), 0);
  EXPECT_EQ(bucket.until(1, kStart + microseconds(999'999)), microseconds(1));
  EXPECT_EQ(bucket.left(kStart + seconds(1)), 1);
  EXPECT_EQ(bucket.left(kStart + milliseconds(59'999)), 59);
  EXPECT_EQ(bucket.left(kStart + seconds(60)), 60);
  EXPECT_EQ(bucket.left(kStart + hours(1)), 60) << "never more than the limit";
}

TEST(TokenBucket, KeepsFractionsOfUnitsAndOfMicroseconds) {
  TokenBucket bucket(7, kStart);  // one in 60/7 s
  bucket.charge(7, kStart);
  EXPECT_EQ(bucket.until(1, kStart), microseconds(8'571'429));
  auto now = kStart;
  for (int i = 0; i < 40'000; ++i) {
    now += nanoseconds(1'499'500);
    bucket.left(now);
  }
  EXPECT_EQ(now - kStart, milliseconds(59'980));
  EXPECT_EQ(bucket.left(now), 6);
  EXPECT_EQ(bucket.untilFull(now), milliseconds(20));
  EXPECT_EQ(bucket.left(now + milliseconds(20)), 7);
}

TEST(TokenBucket, MayOwe) {
  TokenBucket bucket(600, kStart);
  bucket.charge(1000, kStart);
  EXPECT_EQ(bucket.left(kStart), -400);
  EXPECT_EQ(bucket.until(1, kStart), milliseconds(40'100));
  EXPECT_EQ(bucket.untilFull(kStart), seconds(100));
  EXPECT_EQ(bucket.left(kStart + seconds(40)), 0);
  bucket.charge(-250, kStart + seconds(40));
  EXPECT_EQ(bucket.left(kStart + seconds(40)), 250);
  bucket.charge(-1000, kStart + seconds(40));
  EXPECT_EQ(bucket.left(kStart + seconds(40)), 600) << "what is given back never exceeds the limit";
}

TEST(TokenBucket, ALimitChangesWhileItIsUsed) {
  TokenBucket bucket(100, kStart);
  bucket.charge(30, kStart);
  bucket.setPerMinute(50, kStart);
  EXPECT_EQ(bucket.left(kStart), 20);
  bucket.setPerMinute(10, kStart);
  EXPECT_EQ(bucket.left(kStart), -20);
  EXPECT_EQ(bucket.until(1, kStart), seconds(126));
  bucket.setPerMinute(1000, kStart);
  EXPECT_EQ(bucket.left(kStart), 970);
}

TEST(TokenBucket, ExtremesDoNotOverflow) {
  TokenBucket large(TokenBucket::kMaxPerMinute, kStart);
  large.charge(int64_t{1} << 50, kStart);
  const int64_t owed = (int64_t{1} << 50) - TokenBucket::kMaxPerMinute;
  EXPECT_EQ(large.until(0, kStart).count(), (owed * 3 + 49) / 50);  // 60e6 / 1e9 microseconds each, rounded up
  EXPECT_EQ(large.left(kStart + hours(24 * 365)), -owed + int64_t{24} * 365 * 60 * 1'000'000'000);
  EXPECT_EQ(large.left(kStart + hours(24 * 365 * 3)), TokenBucket::kMaxPerMinute);
  TokenBucket small(1, kStart);
  small.charge(1, kStart);
  EXPECT_EQ(small.left(kStart - hours(1)), 0) << "an earlier time counts as the last one";
  EXPECT_EQ(small.left(kStart + seconds(59)), 0);
  EXPECT_EQ(small.left(kStart + hours(200'000)), 1);
}

// Whatever the steps are, the level is that of one division over the time since the bucket was last full.
TEST(TokenBucket, EqualsOneDivisionOverRandomSteps) {
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t end) { return static_cast<int64_t>(random() % end); };
  for (int round = 0; round < 200; ++round) {
    const int64_t limit = 1 + below(uint64_t{1} << (1 + below(29)));
    TokenBucket bucket(limit, kStart);
    // Never full again: the debt is larger than all that is gained.
    int64_t used = 40 * limit;
    bucket.charge(used, kStart);
    auto now = kStart;
    for (int step = 0; step < 100; ++step) {
      now += microseconds(below(10'000'000));
      const int64_t more = below(3);
      bucket.charge(more, now);
      used += more;
      const int64_t passed = (now - kStart) / microseconds(1);
      ASSERT_EQ(bucket.left(now), limit - used + passed * limit / 60'000'000) << limit << " " << passed;
      const auto wait = bucket.until(limit / 2, now);
      TokenBucket before = bucket, then = bucket;
      EXPECT_GE(then.left(now + wait), limit / 2);
      if (wait.count() > 0) {
        EXPECT_LT(before.left(now + wait - microseconds(1)), limit / 2);
      }
    }
  }
}

}  // namespace
}  // namespace chorus::server
