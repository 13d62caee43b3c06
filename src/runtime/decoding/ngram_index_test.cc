#include "runtime/decoding/ngram_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>

#include "base/testing/thread_time.h"

namespace chorus {
namespace {

// The plain definition: it compares the end of the sequence with every n-gram.
std::set<int32_t> plainRepeats(const std::vector<int32_t>& tokens, size_t size) {
  std::set<int32_t> banned;
  for (size_t i = 0; i + size <= tokens.size(); ++i) {
    if (std::equal(tokens.end() - static_cast<ptrdiff_t>(size) + 1, tokens.end(),
                   tokens.begin() + static_cast<ptrdiff_t>(i)))
      banned.insert(tokens[i + size - 1]);
  }
  return banned;
}

std::set<int32_t> repeatsOf(const NgramIndex& index) {
  std::set<int32_t> banned;
  index.forEachRepeat(
      [&](int32_t token) { EXPECT_TRUE(banned.insert(token).second) << token << " was reported twice"; });
  return banned;
}

TEST(NgramIndex, IsThePlainDefinition) {
  std::mt19937 random(7);
  int64_t found = 0;
  for (int round = 0; round < 400; ++round) {
    const auto size = static_cast<int32_t>(1 + random() % (round % 3 == 0 ? 40 : 5));
    const size_t length = random() % 80;
    const auto letters = static_cast<int32_t>(1 + random() % 4);
    SCOPED_TRACE(fmt::format("round {}: n-grams of {}, {} tokens of {}", round, size, length, letters));
    NgramIndex index(size, round % 2 == 0 ? 0 : random() % 80);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < length; ++i) {
      ASSERT_EQ(repeatsOf(index), plainRepeats(tokens, static_cast<size_t>(size)));
      tokens.push_back(static_cast<int32_t>(random()) % letters);
      index.append(tokens.back());
      found += static_cast<int64_t>(repeatsOf(index).size());
    }
    ASSERT_EQ(repeatsOf(index), plainRepeats(tokens, static_cast<size_t>(size)));
  }
  EXPECT_GT(found, 1000);
}

// All tokens are equal and the n-gram is half as long as the sequence, which is the worst case for plainRepeats().
TEST(NgramIndex, ATokenCostsTheSameWhateverTheLengths) {
  constexpr size_t kTokens = 30000;
  NgramIndex index(15000, kTokens);
  for (size_t i = 0; i < kTokens; ++i) index.append(7);
  const auto begin = threadTime();
  size_t banned = 0;
  for (int i = 0; i < 10000; ++i) {
    index.forEachRepeat([&](int32_t) { ++banned; });
    index.append(7);
  }
  EXPECT_EQ(banned, 10000u);
  EXPECT_LT(threadTime() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace chorus
