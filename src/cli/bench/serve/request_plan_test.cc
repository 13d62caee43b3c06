#include "cli/bench/serve/request_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace chorus {
namespace {

std::vector<PlannedRequest> all(const RequestPlanOptions& options) {
  RequestPlan plan(options);
  std::vector<PlannedRequest> requests;
  while (auto request = plan.next()) requests.push_back(std::move(*request));
  EXPECT_FALSE(plan.next().has_value());
  return requests;
}

TEST(RequestPlanTest, EndsByCountOrByTime) {
  RequestPlanOptions options{.arrival = ArrivalKind::kConstant, .rate = 10, .requests = 25};
  EXPECT_EQ(all(options).size(), 25u);
  options.duration = 1.95;
  EXPECT_EQ(all(options).size(), 20u);
  options.requests = 0;
  EXPECT_EQ(all(options).size(), 20u);
}

TEST(RequestPlanTest, LengthsFillTheirRanges) {
  const RequestPlanOptions options{
      .rate = 10, .requests = 3000, .prompt = {3, 7}, .output = {1, 2}, .vocabulary = 50, .models = 4, .seed = 3};
  std::set<size_t> prompts, models;
  std::set<int> outputs;
  int32_t least = 50, most = 0;
  double last = 0;
  for (const PlannedRequest& request : all(options)) {
    prompts.insert(request.prompt.size());
    outputs.insert(request.output_tokens);
    models.insert(request.model);
    for (const int32_t token : request.prompt) {
      least = std::min(least, token);
      most = std::max(most, token);
    }
    EXPECT_GE(request.time, last);
    last = request.time;
  }
  EXPECT_EQ(prompts, (std::set<size_t>{3, 4, 5, 6, 7}));
  EXPECT_EQ(outputs, (std::set<int>{1, 2}));
  EXPECT_EQ(models, (std::set<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(most, 49);
}

TEST(RequestPlanTest, PrefixesAreSharedWithinAModel) {
  const RequestPlanOptions options{
      .rate = 10, .requests = 100, .prompt = {20, 20}, .shared_prefix = 12, .vocabulary = 1000, .models = 2, .seed = 1};
  std::set<std::vector<int32_t>> prefixes, rests;
  for (const PlannedRequest& request : all(options)) {
    prefixes.emplace(request.prompt.begin(), request.prompt.begin() + 12);
    rests.emplace(request.prompt.begin() + 12, request.prompt.end());
  }
  EXPECT_EQ(prefixes.size(), 2u);
  EXPECT_EQ(rests.size(), 100u);
}

TEST(RequestPlanTest, APoolIsAFixedSetOfPromptsForAllModels) {
  const RequestPlanOptions options{
      .rate = 10, .requests = 400, .prompt = {5, 9}, .output = {1, 4}, .vocabulary = 1000, .pool = 3, .models = 4};
  RequestPlan plan(options);
  std::set<std::vector<int32_t>> prompts;
  std::set<std::pair<size_t, int>> pairs;
  for (const PlannedRequest& request : all(options)) {
    const PlannedRequest again = plan.pooled(request.model, request.pool_index);
    EXPECT_EQ(again.prompt, request.prompt);
    EXPECT_EQ(again.output_tokens, request.output_tokens);
    prompts.insert(request.prompt);
    pairs.emplace(request.model, request.pool_index);
  }
  EXPECT_EQ(prompts.size(), 3u);
  EXPECT_EQ(pairs.size(), 12u);
}

TEST(RequestPlanTest, PromptsOfAPoolHaveTheModelsPrefix) {
  const RequestPlan plan({.prompt = {8, 8}, .shared_prefix = 3, .vocabulary = 100'000, .pool = 2, .models = 2});
  const auto prefix = [](const PlannedRequest& r) {
    return std::vector<int32_t>(r.prompt.begin(), r.prompt.begin() + 3);
  };
  const auto rest = [](const PlannedRequest& r) { return std::vector<int32_t>(r.prompt.begin() + 3, r.prompt.end()); };
  EXPECT_EQ(prefix(plan.pooled(0, 0)), prefix(plan.pooled(0, 1)));
  EXPECT_NE(prefix(plan.pooled(0, 0)), prefix(plan.pooled(1, 0)));
  EXPECT_EQ(rest(plan.pooled(0, 0)), rest(plan.pooled(1, 0)));
  EXPECT_NE(rest(plan.pooled(0, 0)), rest(plan.pooled(0, 1)));
}

TEST(RequestPlanTest, AClosedLoopTakesItsTimesFromTheCaller) {
  RequestPlan plan({.duration = 2.0, .models = 1});
  EXPECT_EQ(plan.nextAt(0.5)->time, 0.5);
  EXPECT_EQ(plan.nextAt(1.99)->time, 1.99);
  EXPECT_FALSE(plan.nextAt(2.0).has_value());
}

TEST(RequestPlanTest, ASeedIsOneLoad) {
  RequestPlanOptions options{.rate = 5, .requests = 50, .prompt = {1, 9}, .models = 3, .seed = 8};
  const auto first = all(options), again = all(options);
  options.seed = 9;
  const auto other = all(options);
  const auto same = [](const PlannedRequest& a, const PlannedRequest& b) {
    return a.time == b.time && a.model == b.model && a.prompt == b.prompt;
  };
  EXPECT_TRUE(std::equal(first.begin(), first.end(), again.begin(), same));
  EXPECT_FALSE(std::equal(first.begin(), first.end(), other.begin(), same));
}

TEST(RequestPlanTest, LengthsOnTheCommandLine) {
  EXPECT_EQ(parseLengthRange("128", "--prompt").least, 128);
  EXPECT_EQ(parseLengthRange("128", "--prompt").most, 128);
  EXPECT_EQ(parseLengthRange("1:9", "--prompt").least, 1);
  EXPECT_EQ(parseLengthRange("1:9", "--prompt").most, 9);
  for (const char* bad : {"", "0", "x", "5:", ":5", "9:1", "5:6:7", "1048577", "99999999999", "4 ", "-3"}) {
    EXPECT_THROW(parseLengthRange(bad, "--prompt"), Error) << bad;
  }
}

}  // namespace
}  // namespace chorus
