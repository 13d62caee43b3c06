// Compares the regular expression matcher with Oniguruma, and checks what hostile patterns may cost.
#include "text/tokenizer/regex.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/testing/error_of.h"
#include "text/tokenizer/oniguruma_pattern.h"
#include "text/tokenizer/regex_matcher.h"
#include "text/tokenizer/regex_syntax.h"

namespace chorus {
namespace {

using Ranges = std::vector<TextRange>;

struct Budget {
  explicit Budget(size_t text_bytes, uint64_t work = WorkMeter::kUnlimited)
      : meter({.work = work}), scratch(Scratch::limitFor(text_bytes), meter) {}
  WorkMeter meter;
  Scratch scratch;
  EncodeWork work{meter, scratch};
};

Ranges matchesOf(const Regex& regex, const std::string& text, Budget& budget) {
  Ranges ranges;
  regex.forEachMatch(*Utf8View::check(text), budget.work,
                     [&](size_t begin, size_t end) { return ranges.emplace_back(begin, end), true; });
  return ranges;
}

Ranges matchesOf(const Regex& regex, const std::string& text) {
  Budget budget(text.size());
  return matchesOf(regex, text, budget);
}

// Same loop as in Regex::forEachMatch.
Ranges matchesOfOniguruma(const OnigurumaPattern& pattern, const std::string& text) {
  Budget budget(text.size());
  const Utf8View view = *Utf8View::check(text);
  OnigurumaPattern::Search search(pattern, view, budget.work);
  Ranges ranges;
  size_t last_end = std::string::npos;
  for (size_t from = 0; from <= text.size();) {
    const auto match = search.search(from);
    if (!match) break;
    if (match->first == match->second && match->second == last_end) {
      if (from >= text.size()) break;
      from += view.characterAt(from).length;
      continue;
    }
    ranges.push_back(*match);
    from = last_end = match->second;
  }
  return ranges;
}

const std::vector<std::string> kAtoms = {"a",  "b",  "ab",   "A",      "S",      "s", "t",      "1",      " ",
                                         "  ", "\n", "\r\n", "'",      "-",      "_", ".",      "é",      "\u0301",
                                         "日", "😀", "ß",    "\u017F", "\u212A", "K", "\u2028", "\u00A0", "½"};

std::string randomText(std::mt19937& rng) {
  std::string text;
  for (size_t n = rng() % 14; n > 0; --n) text += kAtoms[rng() % kAtoms.size()];
  return text;
}

// A random pattern of all the syntax that the parser supports, and sometimes of syntax that it doesn't.
std::string randomPattern(std::mt19937& rng, int depth) {
  static const std::vector<std::string> kItems = {"a",           "b",
                                                  "ab",          ".",
                                                  "\\s",         "\\S",
                                                  "\\w",         "\\W",
                                                  "\\d",         "\\D",
                                                  "\\h",         "\\p{L}",
                                                  "\\P{L}",      "\\p{Lu}",
                                                  "\\p{^N}",     "\\p{Han}",
                                                  "[ab]",        "[^a]",
                                                  "[a-c1]",      "[^\\s\\p{L}]",
                                                  "[[:alpha:]]", "[[:^space:]]",
                                                  "[[:punct:]]", "[a[bc]]",
                                                  "[-a]",        "[a-]",
                                                  "\\R",         "\\N",
                                                  "\\O",         "^",
                                                  "$",           "\\A",
                                                  "\\z",         "\\Z",
                                                  "\\b",         "\\B",
                                                  "\\n",         "\\x61",
                                                  "\\x{65e5}",   "\\u00e9",
                                                  "é",           "日",
                                                  " ",           "'",
                                                  "\\.",         "(?#c)",
                                                  "[\\w-]",      "[\\n-\\r]",
                                                  "]",           "}",
                                                  "-",           "[^\\r\\n\\p{L}\\p{N}]",
                                                  "\\p{M}"};
  if (depth == 0 || rng() % 3 == 0) return kItems[rng() % kItems.size()];
  const auto inner = [&] { return randomPattern(rng, depth - 1); };
  static const std::vector<std::string> kQuantifiers = {"*",  "+",   "?",    "*?",    "+?",   "??",     "*+", "++",
                                                        "?+", "{2}", "{1,}", "{0,2}", "{,2}", "{1,3}?", "{0}"};
  switch (rng() % 12) {
    case 0:
    case 1:
    case 2:
      return inner() + inner();
    case 3:
      return inner() + "|" + inner();
    case 4:
      return "(?:" + inner() + "|" + inner() + ")" + kQuantifiers[rng() % kQuantifiers.size()];
    case 5:
      return "(" + inner() + ")" + kQuantifiers[rng() % kQuantifiers.size()];
    case 6:
      return "(?=" + inner() + ")" + inner();
    case 7:
      return inner() + "(?!" + inner() + ")";
    case 8:
      return std::string(rng() % 2 ? "(?<=" : "(?<!") + inner() + ")" + inner();
    case 9:
      return "(?>" + inner() + ")" + inner();
    case 10: {
      static const std::vector<std::string> kFolded = {"(?i:a)",     "(?i:s)",  "(?i:'s|'t|k)",
                                                       "(?i:[a-c])", "(?i:st)", "(?m:.)"};
      return kFolded[rng() % kFolded.size()] + inner();
    }
    default:
      return kItems[rng() % kItems.size()] + kQuantifiers[rng() % kQuantifiers.size()];
  }
}

TEST(RegexTest, EqualsOniguruma) {
  std::mt19937 rng(11);
  int compared = 0, native = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string pattern = randomPattern(rng, 3);
    std::optional<OnigurumaPattern> oracle;
    std::optional<Regex> regex;
    // Regex rewrites the class [:punct:]; the oracle gets the rewritten pattern.
    std::string spelled = pattern;
    for (size_t at; (at = spelled.find("[:punct:]")) != std::string::npos;) spelled.replace(at, 9, "\\p{P}\\p{S}");
    const std::string refused = errorOf([&] { oracle.emplace(spelled, "p"); });
    const std::string ours = errorOf([&] { regex.emplace(pattern, "p"); });
    if (refused.find("more than 2000 times") != std::string::npos) continue;
    if (!refused.empty()) {
      EXPECT_TRUE(!ours.empty()) << pattern << ": " << refused;
      continue;
    }
    ASSERT_EQ(ours, "") << pattern;
    native += regex->isNative();
    for (int k = 0; k < 4; ++k) {
      const std::string text = randomText(rng);
      ASSERT_EQ(matchesOf(*regex, text), matchesOfOniguruma(*oracle, text)) << pattern << "\n" << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 40000);
  EXPECT_GT(native, 10000);
}

// Texts are long repeats of a short text, so that states are memoized, but short enough for the oracle.
TEST(RegexTest, RememberedStatesChangeNoMatch) {
  std::mt19937 rng(5);
  for (int i = 0; i < 400; ++i) {
    const std::string pattern = randomPattern(rng, 3);
    std::optional<OnigurumaPattern> oracle;
    if (!errorOf([&] { oracle.emplace(pattern, "p"); }).empty() || pattern.find("punct") != std::string::npos) continue;
    const Regex regex(pattern, "p");
    if (!regex.isNative()) continue;
    std::string text;
    const std::string unit = "aab a" + randomText(rng);
    while (text.size() < 800) text += unit;
    Ranges expected;
    if (!errorOf([&] { expected = matchesOfOniguruma(*oracle, text); }).empty()) continue;
    ASSERT_EQ(matchesOf(regex, text), expected) << pattern << "\n" << text;
  }
  for (const char* pattern : {"(?:a|b)*c|a", "a*a*b|a", "(?:ab|a|b)+?c|b", "(?:a+b?)+c|ab", "a.*?c|a", "a.{0,40}c|a"}) {
    const Regex regex(pattern, "p");
    const OnigurumaPattern oracle(pattern, "p");
    std::string text;
    for (int n = 0; n < 60; ++n) text += randomText(rng).empty() ? "ab" : "aab";
    text += "c";
    // Short, because Oniguruma tries every way to match what no "c" follows.
    for (int n = 0; n < 5; ++n) text += "ab";
    EXPECT_EQ(matchesOf(regex, text), matchesOfOniguruma(oracle, text)) << pattern;
  }
}

// In long texts, and in searches that exceed Oniguruma's limit of steps and are tried position by position, the matches
// are those of the native matcher, wherever the characters are that a match requires.
TEST(RegexTest, OnigurumaFindsEveryMatchOfALongText) {
  std::mt19937 rng(11);
  std::string long_text;
  while (long_text.size() < 6000) {
    long_text += std::string(rng() % 90, 'a') + (rng() % 3 == 0 ? "b" : "😀") + std::string(rng() % 5, 'c');
  }
  for (const char* pattern : {"a+😀", "a+?\\P{L}", "(?:a|c)+b", "[ac]{3}.*?b|c"}) {
    const Regex regex(pattern, "p");
    ASSERT_TRUE(regex.isNative()) << pattern;
    EXPECT_EQ(matchesOf(regex, long_text), matchesOfOniguruma(OnigurumaPattern(pattern, "p"), long_text)) << pattern;
  }
  // Oniguruma needs exponentially many steps for this pattern: an error, not another result.
  const char* const tiring = "(?:(?:[\\w-].|\\P{L})+?|\\P{L})+?\\P{L}";
  const OnigurumaPattern oracle(tiring, "p");
  std::string text, error;
  while (text.size() < 100 && error.empty()) {
    text += "aaa😀";
    Ranges found;
    error = errorOf([&] { found = matchesOfOniguruma(oracle, text); });
    if (error.empty()) {
      EXPECT_EQ(found, matchesOf(Regex(tiring, "p"), text)) << text;
    }
  }
  EXPECT_THAT(error, ::testing::HasSubstr("retry-limit"));
}

TEST(RegexTest, WorkGrowsWithTheText) {
  const auto work = [](const char* pattern, const std::string& unit, size_t bytes) {
    const Regex regex(pattern, "p");
    EXPECT_TRUE(regex.isNative()) << pattern;
    std::string text;
    while (text.size() < bytes) text += unit;
    Budget budget(text.size(), uint64_t{1} << 34);
    matchesOf(regex, text, budget);
    return budget.meter.spent();
  };
  for (const char* pattern : {"a*a*b|a", "(a+)+$|x", ".*c|a", "a*+b|a", "a.*b|a", "(?:a|b|ab)*c|a", "(?=.*+c)b|a",
                              "\\s+(?!\\S)|\\s+|a", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|a", "a*?b|a"}) {
    for (const char* unit : {"a", "a ", "ab ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "}) {
      const uint64_t small = work(pattern, unit, 20000), large = work(pattern, unit, 160000);
      EXPECT_LT(large, small * 10) << pattern << " on " << unit;
      EXPECT_LT(large, uint64_t{160000} * 8192) << pattern << " on " << unit;
    }
  }
}

TEST(RegexTest, PatternsThatNeedBacktrackingStopAtTheLimit) {
  const std::string text(100000, 'a');
  for (const char* pattern : {"(?=(a*a*)c)a|a", "(?>(?:aa|a)*)c|a", "(?<=a)(?=(?:a|aa)*c)a|a", "(?!(a*a*)c)ab|a"}) {
    const Regex regex(pattern, "p");
    EXPECT_TRUE(regex.isNative()) << pattern;
    Budget budget(text.size(), uint64_t{1} << 28);
    EXPECT_THAT(errorOf([&] { matchesOf(regex, text, budget); }),
                testing::AnyOf(testing::HasSubstr("bytes of work"), testing::HasSubstr("too deep")))
        << pattern;
    EXPECT_LT(budget.meter.spent(), (uint64_t{1} << 28) + 100000) << pattern;
  }
}

TEST(RegexTest, TheStateOfManyLoopsIsScratchMemory) {
  constexpr size_t kLoops = 2000;
  std::string pattern = "b";
  for (size_t i = 0; i < kLoops; ++i) pattern += "a*";
  const Regex regex(pattern, "p");
  ASSERT_TRUE(regex.isNative());
  Budget budget(1);
  const size_t before = budget.scratch.left();
  size_t left = before;
  regex.forEachMatch(*Utf8View::check("b"), budget.work, [&](size_t, size_t) {
    left = budget.scratch.left();
    return true;
  });
  EXPECT_LE(left, before - kLoops * 8);
  EXPECT_EQ(budget.scratch.left(), before);
}

TEST(RegexTest, ChainsOfSubroutineCallsAreRefused) {
  std::string numbered, named;
  for (int i = 2; i <= 27; ++i) numbered += fmt::format("(\\g<{0}>\\g<{0}>\\g<{0}>)", i);
  for (int i = 1; i <= 20; ++i) named += fmt::format("(?<n{}>\\g'n{}'\\g'n21')", i, i + 1);
  for (const std::string& pattern : {numbered + "(a)", named + "(?<n21>x)"}) {
    EXPECT_THAT(errorOf([&] { Regex(pattern, "t.json"); }), testing::HasSubstr("subroutine calls; the limit is 8"));
  }
}

TEST(RegexTest, RareSyntaxIsLimitedToo) {
  for (const char* pattern : {"(a*)*\\1b|a", "\\X", "(?<x>a|b\\g<x>)c", "(?i:ß)", "(a+)+\\1$"}) {
    const Regex regex(pattern, "p");
    EXPECT_FALSE(regex.isNative()) << pattern;
    const std::string text(OnigurumaPattern::kMaxTextBytes, 'a');
    Budget budget(text.size(), uint64_t{1} << 29);
    errorOf([&] { matchesOf(regex, text, budget); });
    EXPECT_LT(budget.meter.spent(), uint64_t{1} << 31) << pattern;
    EXPECT_THAT(errorOf([&] { matchesOf(regex, text + "a"); }), testing::HasSubstr("limits the text to 65536 bytes"))
        << pattern;
  }
}

// The first bytes of each branch are sought through all that may follow it.
TEST(RegexTest, CompilationIsCharged) {
  std::string pattern;
  for (int i = 0; i < 63; ++i) pattern += "(?:x?|y?)";
  for (int i = 0; i < 600; ++i) pattern += "\\w?";
  WorkMeter meter;
  ASSERT_TRUE(Regex(pattern, "p", meter).isNative());
  const uint64_t spent = meter.spent();
  EXPECT_GT(spent, 1'000'000u) << "nanoseconds";
  WorkMeter enough({.work = 100 * spent}), little({.work = 100'000});
  EXPECT_TRUE(Regex(pattern, "p", enough).isNative());
  EXPECT_THROW(Regex(pattern, "p", little), WorkStopped);
}

TEST(RegexTest, PatternsThatAreWrongOrTooLargeAreRefused) {
  EXPECT_THAT(errorOf([] { Regex("(", "t.json"); }),
              testing::HasSubstr("t.json: the regular expression doesn't compile"));
  EXPECT_THAT(errorOf([] { Regex(std::string(20000, 'a'), "t.json"); }), testing::HasSubstr("the limit is"));
  EXPECT_THAT(errorOf([] { Regex("(a{500}){500}\\1", "t.json"); }), testing::HasSubstr("repeats more than"));
  std::string nested(200, '(');
  for (int i = 0; i < 200; ++i) nested += "a)*";
  EXPECT_NE(errorOf([&] { Regex(nested, "t.json"); }), "");
}

}  // namespace
}  // namespace chorus
