#include "cli/bench/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <regex>

namespace chorus {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TEST(SvgPlotTest, CurvesAreSharesOfAll) {
  EXPECT_THAT(cumulativeCurve({0.004, 0.001, 0.002, 0.003}, 1e3),
              testing::ElementsAre(Pair(1, 25), Pair(2, 50), Pair(3, 75), Pair(4, 100)));
  EXPECT_TRUE(cumulativeCurve({}, 1).empty());
  std::vector<double> many(100'001);
  std::iota(many.begin(), many.end(), 0.0);
  const auto curve = cumulativeCurve(many, 1);
  EXPECT_LE(curve.size(), 400u);
  EXPECT_EQ(curve.back(), std::pair(100'000.0, 100.0));
}

// Every number of every path lies within the view box, and tags are balanced.
void expectWellFormed(const std::string& svg) {
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)[^>]*?(/?)>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), tag); it != std::sregex_iterator(); ++it) {
    if ((*it)[3].length() > 0) continue;
    if ((*it)[1].length() == 0) {
      open.push_back((*it)[2]);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  const std::regex point("[ML]([-0-9.]+) ([-0-9.]+)");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), point); it != std::sregex_iterator(); ++it) {
    EXPECT_GE(std::stod((*it)[1]), 0);
    EXPECT_LE(std::stod((*it)[1]), 760);
    EXPECT_GE(std::stod((*it)[2]), 0);
    EXPECT_LE(std::stod((*it)[2]), 420);
  }
}

TEST(SvgPlotTest, PlotsOfAnyRange) {
  for (const bool log : {false, true}) {
    expectWellFormed(svgOf({.title = "none", .log_x = log}));
    expectWellFormed(svgOf({.title = "empty", .log_x = log, .series = {{"a", {}}}}));
    expectWellFormed(svgOf({.title = "one", .log_x = log, .series = {{"a", {{5, 100}}}}}));
    expectWellFormed(svgOf({.title = "zero", .log_x = log, .series = {{"a", {{0, 50}, {0, 100}}}}}));
    expectWellFormed(svgOf({.title = "wide", .log_x = log, .series = {{"a", {{0, 1}, {1e-6, 50}, {1e9, 100}}}}}));
    expectWellFormed(svgOf({.title = "near", .log_x = log, .series = {{"a", {{41.1, 50}, {41.2, 100}}}}}));
  }
}

TEST(SvgPlotTest, LargerIsFurtherRightAndUp) {
  const std::string svg = svgOf({.log_x = true, .series = {{"a", {{1, 0}, {10, 50}, {100, 100}}}}});
  EXPECT_THAT(svg, HasSubstr("d=\"M64.0 364.0L400.0 218.0L736.0 72.0\""));
}

TEST(SvgPlotTest, NamesAreEscaped) {
  const std::string svg = svgOf({.title = "a<b>&\"c\"\n", .series = {{"<s>", {{1, 1}}}}});
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot; "));
  EXPECT_THAT(svg, HasSubstr("&lt;s&gt;"));
  expectWellFormed(svg);
}

}  // namespace
}  // namespace chorus
