#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace chorus {
namespace {

std::shared_ptr<const StopStrings> stringsOf(std::vector<std::string> stops) {
  return std::make_shared<const StopStrings>(std::move(stops));
}

std::string runPieces(const std::vector<std::string>& stops, bool include, std::string_view text, std::mt19937& rng) {
  StopMatcher matcher(stringsOf(stops), include);
  std::string out;
  while (!text.empty()) {
    const size_t n = std::min<size_t>(text.size(), 1 + rng() % 4);
    out += matcher.feed(text.substr(0, n));
    text.remove_prefix(n);
  }
  return out + matcher.flush();
}

TEST(StopMatcherTest, HoldsBackWhatMayBeAStop) {
  StopMatcher matcher(stringsOf({"</s>", "\n\n"}));
  EXPECT_EQ(matcher.feed("ab<"), "ab");
  EXPECT_EQ(matcher.feed("/"), "");
  EXPECT_EQ(matcher.feed("b>\n"), "</b>");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.feed("c"), "\nc");
  EXPECT_EQ(matcher.feed("d</s>tail"), "d");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matchedStop(), "</s>");
  EXPECT_EQ(matcher.feed("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcherTest, IncludesTheStopWhenAsked) {
  StopMatcher matcher(stringsOf({"END"}), true);
  EXPECT_EQ(matcher.feed("a E"), "a ");
  EXPECT_EQ(matcher.feed("NDx"), "END");
}

TEST(StopMatcherTest, FlushGivesAnUnfinishedStop) {
  StopMatcher matcher(stringsOf({"END"}));
  EXPECT_EQ(matcher.feed("a EN"), "a ");
  EXPECT_EQ(matcher.flush(), "EN");
}

TEST(StopMatcherTest, MatchersShareTheirStopStrings) {
  const auto stops = stringsOf({"END"});
  StopMatcher one(stops), other(stops);
  EXPECT_EQ(one.feed("EN"), "");
  EXPECT_EQ(other.feed("E"), "");
  EXPECT_EQ(other.feed("Dx"), "EDx");
  one.feed("D");
  EXPECT_TRUE(one.stopped());
  EXPECT_FALSE(other.stopped());
  EXPECT_EQ(stops.use_count(), 3);
  StopMatcher none(nullptr);
  EXPECT_EQ(none.feed("END"), "END");
}

// Reference implementation: tests every end position from left to right.
std::string plainModel(const std::vector<std::string>& stops, bool include, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const auto& stop : stops) {
      if (!stop.empty() && text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, include ? end : end - longest);
  }
  return text;
}

TEST(StopMatcherTest, PiecesMakeNoDifference) {
  std::mt19937 rng(7);
  const auto randomText = [&](size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s.push_back("ab"[rng() % 2]);
    return s;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = rng() % 4; i > 0; --i) stops.push_back(randomText(rng() % 6));
    const std::string text = randomText(rng() % 20);
    const bool include = rng() % 2 == 0;
    ASSERT_EQ(runPieces(stops, include, text, rng), plainModel(stops, include, text)) << "round " << round;
  }
}

}  // namespace
}  // namespace chorus
