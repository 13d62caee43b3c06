#include "runtime/kv_cache/shared_numbers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace chorus {
namespace {

TEST(SharedNumbers, NobodyLosesANumberForAnothersSake) {
  SharedNumbers numbers;
  const uint64_t mine = numbers.acquire("mine");
  for (int i = 0; i < 100000; ++i) {
    const uint64_t other = numbers.acquire(fmt::format("other {}", i));
    EXPECT_NE(other, mine);
    numbers.release(other);
  }
  EXPECT_EQ(numbers.acquire("mine"), mine);
  EXPECT_EQ(numbers.size(), 1u) << "what nothing refers to is not kept";
}

TEST(SharedNumbers, AreThoseOfAPlainMap) {
  std::mt19937 random(3);
  SharedNumbers numbers;
  std::map<std::string, std::pair<uint64_t, int>> plain;  // number, references
  std::vector<std::string> held;
  for (int i = 0; i < 20000; ++i) {
    if (held.empty() || random() % 2 == 0) {
      const std::string key = random() % 10 == 0 ? fmt::format("fresh {}", i) : std::to_string(random() % 20);
      const uint64_t number = key.starts_with("fresh") ? numbers.acquireFresh() : numbers.acquire(key);
      ASSERT_GT(number, 0u);
      auto& [known, references] = plain[key];
      for (const auto& [other, value] : plain) ASSERT_TRUE(other == key || value.first != number) << other;
      ASSERT_TRUE(references == 0 || known == number);
      known = number;
      ++references;
      held.push_back(key);
    } else {
      std::swap(held[random() % held.size()], held.back());
      auto& [number, references] = plain.at(held.back());
      numbers.release(number);
      if (--references == 0) plain.erase(held.back());
      held.pop_back();
    }
    ASSERT_EQ(numbers.size(), plain.size());
  }
}

}  // namespace
}  // namespace chorus
