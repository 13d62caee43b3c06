#include "runtime/decoding/word_automaton.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/testing/thread_time.h"

namespace chorus {
namespace {

using Words = std::vector<std::vector<int32_t>>;

WordAutomaton automatonOf(const Words& words) {
  const std::vector<std::span<const int32_t>> spans(words.begin(), words.end());
  return WordAutomaton(spans);
}

std::vector<uint32_t> endsOf(const WordAutomaton& automaton, WordAutomaton::State state) {
  std::vector<uint32_t> ends;
  automaton.forEachEnd(state, [&](uint32_t word) { ends.push_back(word); });
  std::sort(ends.begin(), ends.end());
  return ends;
}

// The definition: compares the end of the sequence with every word.
std::vector<uint32_t> plainEnds(const Words& words, const std::vector<int32_t>& tokens) {
  std::vector<uint32_t> ends;
  for (uint32_t w = 0; w < words.size(); ++w) {
    const auto& word = words[w];
    if (word.size() <= tokens.size() && std::equal(word.rbegin(), word.rend(), tokens.rbegin())) ends.push_back(w);
  }
  return ends;
}

// With two or three different tokens, words often overlap, are equal, or begin or end with others.
TEST(WordAutomaton, FindsTheWordsThatTheTokensEndWith) {
  std::mt19937 random(11);
  size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const auto tokenOf = [&, letters = 2 + random() % 2] { return static_cast<int32_t>(random() % letters); };
    Words words(random() % 9);
    for (auto& word : words) {
      word.resize(random() % (round % 4 == 0 ? 12 : 5));
      for (auto& token : word) token = tokenOf();
    }
    const WordAutomaton automaton = automatonOf(words);
    WordAutomaton::State state = WordAutomaton::kStart;
    std::vector<int32_t> tokens;
    for (int i = 0; i < 60; ++i) {
      const auto ends = endsOf(automaton, state);
      ASSERT_EQ(ends, plainEnds(words, tokens)) << "token " << i;
      ASSERT_EQ(automaton.endsAny(state), !ends.empty());
      ASSERT_EQ(automaton.after(tokens), state);
      found += ends.size();
      tokens.push_back(tokenOf());
      state = automaton.next(state, tokens.back());
    }
  }
  EXPECT_GT(found, 10000u);
}

TEST(WordAutomaton, WithoutWordsNothingEnds) {
  const WordAutomaton automaton;
  EXPECT_FALSE(automaton.endsAny(automaton.next(WordAutomaton::kStart, 7)));
  EXPECT_EQ(automaton.after(std::vector<int32_t>{1, 2}), WordAutomaton::kStart);
}

// Words of one repeated token have the most beginnings that end with one another.
TEST(WordAutomaton, ATokenCostsTheSameWhateverTheWords) {
  Words words(256, std::vector<int32_t>(1023, 7));
  for (size_t i = 0; i < words.size(); ++i) words[i].back() = static_cast<int32_t>(1000 + i);
  const WordAutomaton automaton = automatonOf(words);
  const auto begin = threadTime();
  WordAutomaton::State state = WordAutomaton::kStart;
  for (int i = 0; i < 500000; ++i) state = automaton.next(state, i % 5000 == 0 ? 8 : 7);
  EXPECT_LT(threadTime() - begin, std::chrono::seconds(1));
  EXPECT_TRUE(automaton.endsAny(automaton.next(state, 1000)));
}

}  // namespace
}  // namespace chorus
