#include "cli/bench/serve/serve_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace chorus {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;
using testing::Pointwise;

RequestRecord answered(size_t model, double planned, double first, int tokens, double gap) {
  RequestRecord record{.model = model, .prompt_tokens = 10, .planned = planned, .sent = planned};
  record.first = planned + first;
  record.gaps.assign(static_cast<size_t>(tokens - 1), gap);
  record.last = record.first + gap * (tokens - 1);
  record.end = record.last;
  record.output_tokens = tokens;
  return record;
}

LoadResult load() {
  LoadResult result;
  result.records = {answered(0, 0.0, 0.1, 5, 0.02), answered(1, 1.0, 0.3, 5, 0.02), answered(1, 2.0, 0.1, 5, 0.06)};
  RequestRecord refused{.model = 0, .planned = 3.0, .sent = 3.0};
  refused.end = 3.1;
  refused.error = "status 429";
  refused.error_text = "too many";
  result.records.push_back(refused);
  result.seconds = 4.0;
  return result;
}

TEST(ServeReportTest, RatesCountWhatWasAnswered) {
  const ServeSummary s = summarizeLoad(load(), {});
  EXPECT_EQ(s.sent, 4u);
  EXPECT_EQ(s.complete, 3u);
  EXPECT_EQ(s.good, 3u);
  EXPECT_DOUBLE_EQ(s.requests_per_s, 0.75);
  EXPECT_DOUBLE_EQ(s.prompt_tokens_per_s, 7.5);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_s, 3.75);
  EXPECT_EQ(s.errors.at("status 429"), 1u);
  EXPECT_EQ(s.gap.count, 12u);
  EXPECT_NEAR(s.first.max, 0.3, 1e-9);
  EXPECT_NEAR(s.per_token.max, 0.06, 1e-9);
}

TEST(ServeReportTest, GoodputKeepsBothTargets) {
  EXPECT_EQ(summarizeLoad(load(), {.first_s = 0.2}).good, 2u);
  EXPECT_EQ(summarizeLoad(load(), {.gap_s = 0.05}).good, 2u);
  EXPECT_EQ(summarizeLoad(load(), {.first_s = 0.2, .gap_s = 0.05}).good, 1u);
  EXPECT_DOUBLE_EQ(summarizeLoad(load(), {.first_s = 0.2, .gap_s = 0.05}).goodput_per_s, 0.25);
}

TEST(ServeReportTest, Table) {
  const ServeTargets targets{.first_s = 0.2, .gap_s = 0.05};
  const std::string table = serveTable(summarizeLoad(load(), targets), targets);
  EXPECT_THAT(table, HasSubstr("4 requests sent, 3 answered in full, 1 failed"));
  EXPECT_THAT(table, HasSubstr("1 x status 429: too many"));
  EXPECT_THAT(table, HasSubstr("goodput 0.25 requests/s: 1 of 4 kept first token within 200 ms, 50 ms a token"));
  EXPECT_THAT(table, Not(HasSubstr("late")));
}

TEST(ServeReportTest, TriesAndComparisonsAreCounted) {
  LoadResult result = load();
  result.streams = 4;
  result.verify = true;
  result.first_difference = "a, prompt 1";
  RequestRecord& recovered = result.records[0];
  recovered.retries = 3;
  recovered.refused_429 = 2;
  recovered.tried = 0.06;
  recovered.comparison = Comparison::kEqual;
  result.records[1].comparison = Comparison::kDifferent;
  result.records[2].comparison = Comparison::kUnknownContent;
  result.records[3].refused_429 = 1;
  const ServeSummary s = summarizeLoad(result, {});
  const std::string table = serveTable(s, {});
  EXPECT_THAT(table, testing::StartsWith("4 streams at a time: 4 requests sent"));
  EXPECT_THAT(table, HasSubstr("refused with status 429: 3, tried again: 3, answered in full after that: 1\n"));
  EXPECT_THAT(
      table, HasSubstr("compared with their solo answers: 2, different: 1, by weights that no solo answer names: 1\n"));
  EXPECT_THAT(table, HasSubstr("... from the last try      40.00"));
  const Json json = serveJson(result, s, {}, {"base", "a"});
  EXPECT_EQ(json["streams"], 4);
  EXPECT_EQ(json["refused_429"], 3);
  EXPECT_EQ(json["retries"], 3);
  EXPECT_EQ(json["recovered"], 1);
  EXPECT_EQ(json["verified"], 2);
  EXPECT_EQ(json["different"], 1);
  EXPECT_EQ(json["unknown_content"], 1);
  EXPECT_EQ(json["first_difference"], "a, prompt 1");
}

TEST(ServeReportTest, WithoutThemTheyAreNoLinesAndNull) {
  const LoadResult result = load();
  const ServeSummary s = summarizeLoad(result, {});
  EXPECT_THAT(serveTable(s, {}), Not(HasSubstr("tried again")));
  EXPECT_THAT(serveTable(s, {}), Not(HasSubstr("solo")));
  const Json json = serveJson(result, s, {}, {"base", "a"});
  for (const char* key : {"streams", "verified", "different", "unknown_content", "first_difference"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  EXPECT_EQ(json["refused_429"], 0);
}

TEST(ServeReportTest, ALateGeneratorSaysSo) {
  LoadResult result = load();
  for (RequestRecord& record : result.records) record.sent += 0.5;
  EXPECT_THAT(serveTable(summarizeLoad(result, {}), {}), HasSubstr("generator late by"));
}

TEST(ServeReportTest, UnfinishedRequestsShowTheirTokens) {
  LoadResult result = load();
  result.records[0].error = RequestRecord::kUnfinished;
  const ServeSummary s = summarizeLoad(result, {});
  EXPECT_EQ(s.unfinished, 1u);
  EXPECT_EQ(s.first.count, 3u);
  EXPECT_EQ(s.gap.count, 12u);
  EXPECT_EQ(s.latency.count, 2u);
  EXPECT_DOUBLE_EQ(s.requests_per_s, 0.5);
  EXPECT_THAT(serveTable(s, {}),
              HasSubstr("2 answered in full, 1 failed, 1 unfinished when the load was stopped, in 4"));
}

TEST(ServeReportTest, JsonHasARowForEachModelAsked) {
  const LoadResult result = load();
  const Json json = serveJson(result, summarizeLoad(result, {}), {}, {"base", "a", "unasked"});
  ASSERT_EQ(json["models"].size(), 2u);
  EXPECT_EQ(json["models"][0]["model"], "base");
  EXPECT_EQ(json["models"][0]["sent"], 2);
  EXPECT_EQ(json["models"][0]["complete"], 1);
  EXPECT_EQ(json["models"][1]["inter_token_ms"]["count"], 8);
  EXPECT_EQ(json["errors"]["status 429"]["count"], 1);
  EXPECT_TRUE(json["goodput"]["slo_ttft_ms"].is_null());
  EXPECT_NEAR(json["time_to_first_token_ms"]["p50"].get<double>(), 100.0, 1e-6);
}

TEST(ServeReportTest, JsonHasTheCurvesOfAPlot) {
  const LoadResult result = load();
  const Json quantiles = serveJson(result, summarizeLoad(result, {}), {}, {"base", "a"})["quantiles"];
  EXPECT_THAT(quantiles["time_to_first_token_ms"].get<std::vector<double>>(),
              Pointwise(DoubleNear(1e-6), {100.0, 100.0, 300.0}));
  EXPECT_THAT(quantiles["latency_ms"].get<std::vector<double>>(), Pointwise(DoubleNear(1e-6), {180.0, 340.0, 380.0}));
  std::vector<double> gaps(12, 20.0);
  std::fill(gaps.begin() + 8, gaps.end(), 60.0);
  EXPECT_THAT(quantiles["inter_token_ms"].get<std::vector<double>>(), Pointwise(DoubleNear(1e-6), gaps));
}

TEST(ServeReportTest, NothingAnsweredIsStillAReport) {
  LoadResult result;
  EXPECT_THAT(serveTable(summarizeLoad(result, {}), {}), HasSubstr("0 requests sent"));
  EXPECT_TRUE(serveJson(result, summarizeLoad(result, {}), {}, {"base"})["latency_ms"].is_null());
  EXPECT_EQ(serveJson(result, summarizeLoad(result, {}), {}, {"base"})["quantiles"]["latency_ms"], Json::array());
}

}  // namespace
}  // namespace chorus
