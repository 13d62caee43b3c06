// Compositions of adapters through the executor's loop: shared groups, claims of all members or none, refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::LoraConfig;
using executor::Request;
using executor::WeightedLora;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeComposition;
using testing::fakeSource;
using testing::Gate;

class ExecutorCompositionTest : public CoreFixture {
 protected:
  static Request composed(executor::VecTokens prompt, int32_t max_tokens, std::vector<WeightedLora> terms) {
    Request r = request(std::move(prompt), max_tokens);
    r.setLoraComposition(std::move(terms));
    return r;
  }
  void registerAdapters(std::initializer_list<const char*> names) {
    uint64_t id = 0;
    for (const char* name : names) core->registerAdapter(++id, fakeSource(name));
  }
};

TEST_F(ExecutorCompositionTest, ActsAsItsMembersAndWeights) {
  start();
  registerAdapters({"red", "blue"});
  EXPECT_EQ(answer(composed({1, 2}, 9, {{1, 0.5f}, {2, -2.0f}})),
            expectedTokens({1, 2}, 9, kVocab, fakeComposition({{"red", 0.5f}, {"blue", -2.0f}})));
  EXPECT_EQ(answer(composed({1, 2}, 9, {{2, -2.0f}, {1, 0.0f}})),
            expectedTokens({1, 2}, 9, kVocab, fakeComposition({{"blue", -2.0f}, {"red", 0.0f}})));
  EXPECT_EQ(answer(composed({1, 2}, 9, {{1, 0.5f}, {1, 0.25f}})),
            expectedTokens({1, 2}, 9, kVocab, fakeComposition({{"red", 0.5f}, {"red", 0.25f}})));
  EXPECT_EQ(answer(composed({1, 2}, 9, {{1, 0.5f}})),
            expectedTokens({1, 2}, 9, kVocab, fakeComposition({{"red", 0.5f}})));
  EXPECT_EQ(answer(composed({1, 2}, 9, {{1, 1.0f}})), expectedTokens({1, 2}, 9, kVocab, "red"));
  EXPECT_EQ(loads, 2) << "members are loaded once";
}

TEST_F(ExecutorCompositionTest, EqualCompositionsShareAGroup) {
  Gate gate;
  std::vector<size_t> groups;
  before_step = [&](int, const StepInput& input) {
    gate.pass();
    groups.push_back(input.adapters.size());
  };
  start();
  registerAdapters({"red", "blue"});
  answer(composed({1}, 1, {{1, 1.0f}, {2, 1.0f}}));
  gate.close();
  const auto base = enqueue(request({7}, 3));
  gate.awaitArrivals(2);
  std::vector<executor::IdType> ids;
  ids.push_back(enqueue(composed({1, 2}, 2, {{1, 0.5f}, {2, 0.5f}})));
  ids.push_back(enqueue(composed({3, 4}, 2, {{1, 0.5f}, {2, 0.5f}})));
  ids.push_back(enqueue(composed({5, 6}, 2, {{1, 1.0f}})));
  gate.open();
  for (const auto id : ids) resultOf(id);
  resultOf(base);
  core->shutdown();
  EXPECT_EQ(*std::max_element(groups.begin(), groups.end()), 2u) << "one of the two that are equal, one of the adapter";
  const auto stats = core->takeStats();
  EXPECT_TRUE(std::any_of(stats.begin(), stats.end(), [](const auto& s) { return s.numAdapters == 2; }));
}

TEST_F(ExecutorCompositionTest, RequestsThatWaitHoldNoComposedWeights) {
  Gate gate;
  std::vector<int> composed_beside_base;
  before_step = [&](int, const StepInput& input) {
    gate.pass();
    if (input.adapters.empty()) composed_beside_base.push_back(network->compositions);
  };
  options.scheduler.max_batch_size = 1;
  start();
  registerAdapters({"red", "blue"});
  answer(composed({1}, 1, {{1, 1.0f}, {2, 1.0f}}));
  gate.close();
  const auto base = enqueue(request({7}, 9));
  gate.awaitArrivals(2);
  std::vector<executor::IdType> ids;
  for (const float weight : {0.25f, 0.5f, 0.75f}) ids.push_back(enqueue(composed({1, 2}, 2, {{1, weight}, {2, 1.0f}})));
  gate.open();
  resultOf(base);
  for (const auto id : ids) resultOf(id);
  core->shutdown();
  EXPECT_EQ(composed_beside_base, std::vector<int>(9, 1)) << "the one that ran before";
  EXPECT_EQ(network->compositions, 4);
}

TEST_F(ExecutorCompositionTest, BlocksAreReusedByTheSameCompositionAlone) {
  start();
  registerAdapters({"red", "blue"});
  const executor::VecTokens prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto cached = [&](std::vector<WeightedLora> terms) {
    return resultOf(enqueue(composed(prompt, 2, std::move(terms)))).cachedTokens;
  };
  EXPECT_EQ(cached({{1, 1.0f}, {2, 0.5f}}), 0);
  EXPECT_EQ(cached({{1, 1.0f}, {2, 0.5f}}), 8);
  EXPECT_EQ(cached({{2, 0.5f}, {1, 1.0f}}), 0) << "the order of the sum is another";
  EXPECT_EQ(cached({{1, 1.0f}, {2, 0.25f}}), 0);
  EXPECT_EQ(cached({{1, 1.0f}}), 0);
  EXPECT_EQ(cached({{1, 1.0f}}), 8);
}

TEST_F(ExecutorCompositionTest, InvalidCompositionsAreRefused) {
  start();
  registerAdapters({"red", "blue-60", "huge-60"});
  EXPECT_EQ(errorOf(enqueue(composed({1}, 2, {{1, 1.0f}, {77, 1.0f}}))),
            "LoRA task 77 not found in cache. Please send LoRA weights with request");
  auto both = composed({1}, 2, {{1, 0.5f}});
  both.setLoraConfig(LoraConfig(1));
  EXPECT_EQ(errorOf(enqueue(both)), "a request has a LoraConfig or a LoRA composition, not both");
  EXPECT_THAT(errorOf(enqueue(composed({1}, 2, std::vector<WeightedLora>(65, {1, 0.5f})))),
              ::testing::HasSubstr("has 65 terms; the maximum is 64"));
  EXPECT_EQ(errorOf(enqueue(composed({1}, 2, {{2, 1.0f}, {3, 1.0f}}))), "PEFT Cache is full. Could not store taskId=2");
  for (const float weight : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(composed({1}, 2, {{1, weight}}), std::invalid_argument);
  }
  EXPECT_EQ(answer(composed({1}, 2, std::vector<WeightedLora>(64, {1, 0.5f}))).size(), 2u);
}

TEST_F(ExecutorCompositionTest, MembersThatFitTheHostButNotTheDeviceAreRefused) {
  setAdapterRoom(100, 50);
  start();
  registerAdapters({"red-30", "blue-30"});
  EXPECT_EQ(errorOf(enqueue(composed({1}, 2, {{1, 1.0f}, {2, 1.0f}}))), "PEFT Cache is full. Could not store taskId=1");
  EXPECT_EQ(answer(composed({1}, 2, {{1, 0.5f}})).size(), 2u);
}

TEST_F(ExecutorCompositionTest, AMemberThatFailsToLoadFailsItsCompositionsAlone) {
  Gate gate;
  gate.close();
  breakLoad("broken", gate, "it is truncated");
  start();
  registerAdapters({"red", "broken", "blue"});
  const auto fails = enqueue(composed({1}, 2, {{1, 1.0f}, {2, 1.0f}})), also = enqueue(composed({1}, 2, {{2, 3.0f}}));
  const auto whole = enqueue(composed({1}, 2, {{1, 1.0f}, {3, 1.0f}}));
  gate.open();
  EXPECT_EQ(errorOf(fails), "Error storing task=2 in PEFT cache -- it is truncated");
  EXPECT_EQ(errorOf(also), "Error storing task=2 in PEFT cache -- it is truncated");
  EXPECT_EQ(resultOf(whole).outputTokenIds.at(0),
            expectedTokens({1}, 2, kVocab, fakeComposition({{"red", 1.0f}, {"blue", 1.0f}})));
  core->shutdown();
  EXPECT_EQ(core->adapterCacheStats().host.pinnedAdapters, 0);
  EXPECT_EQ(core->adapterCacheStats().device.pinnedAdapters, 0);
}

TEST_F(ExecutorCompositionTest, ANewGenerationOfAMemberServesLaterRequestsOnly) {
  Gate gate;
  gate.close();
  holdStep(1, gate);
  start();
  registerAdapters({"old", "blue"});
  const auto before = enqueue(composed({1}, 20, {{1, 0.5f}, {2, 0.5f}}));
  gate.awaitArrivals(1);
  core->registerAdapter(1, fakeSource("new"));
  const auto after = enqueue(composed({1}, 20, {{1, 0.5f}, {2, 0.5f}}));
  gate.open();
  EXPECT_EQ(resultOf(before).outputTokenIds.at(0),
            expectedTokens({1}, 20, kVocab, fakeComposition({{"old", 0.5f}, {"blue", 0.5f}})));
  EXPECT_EQ(resultOf(after).outputTokenIds.at(0),
            expectedTokens({1}, 20, kVocab, fakeComposition({{"new", 0.5f}, {"blue", 0.5f}})));
}

// With room for two adapters, claiming members one by one would deadlock requests that hold one member each.
TEST_F(ExecutorCompositionTest, CompositionsThatShareMembersDoNotDeadlock) {
  setAdapterRoom(2);
  start();
  registerAdapters({"a", "b", "c", "d"});
  const std::string names[] = {"a", "b", "c", "d"};
  std::vector<std::pair<executor::IdType, executor::VecTokens>> asked;
  for (int i = 0; i < 120; ++i) {
    const uint64_t first = static_cast<uint64_t>(i) % 4, second = (first + 1 + static_cast<uint64_t>(i) / 4 % 3) % 4;
    const auto id = enqueue(composed({i % 7, 2}, 4, {{first + 1, 0.5f}, {second + 1, 2.0f}}));
    asked.emplace_back(
        id, expectedTokens({i % 7, 2}, 4, kVocab, fakeComposition({{names[first], 0.5f}, {names[second], 2.0f}})));
  }
  for (const auto& [id, expected] : asked) EXPECT_EQ(resultOf(id).outputTokenIds.at(0), expected);
  core->shutdown();
  const auto stats = core->adapterCacheStats();
  EXPECT_EQ(stats.host.pinnedAdapters, 0);
  EXPECT_LE(stats.host.residentBytes, 2);
  EXPECT_EQ(stats.loads, stats.host.misses);
  EXPECT_GT(stats.host.evictions, 0);
}

// Compositions of one client that are eight times as large as the base model, beside a sequence of another client.
TEST_F(ExecutorCompositionTest, LargeCompositionsOfAClientDoNotSlowTheOthers) {
  options.base_bytes = 1;
  options.scheduler.max_batch_size = 8;
  options.scheduler.kv_blocks = 200;
  constexpr int32_t kTokens = 40;
  Gate gate;
  int steps = 0, composed_rows = 0;
  before_step = [&](int, const StepInput& input) {
    gate.pass();
    if (input.adapters.size() == input.sequences.size()) return;  // after the neighbour's end
    ++steps;
    composed_rows += static_cast<int>(input.adapters.size());
  };
  start();
  registerAdapters({"red-4", "blue-4"});
  answer(composed({1}, 1, {{1, 1.0f}, {2, 1.0f}}));  // loads the adapters
  gate.close();
  Request neighbour = request({1, 2, 3}, kTokens);
  neighbour.setClientId(1);
  const auto watched = enqueue(neighbour);
  gate.awaitArrivals(2);
  std::vector<std::pair<executor::IdType, float>> others;
  for (int i = 0; i < 7; ++i) {
    const float weight = 1.0f + static_cast<float>(i);
    Request large = composed({4, 5}, 12, {{1, weight}, {2, 1.0f}});
    large.setClientId(2);
    others.emplace_back(enqueue(large), weight);
  }
  gate.open();
  EXPECT_EQ(resultOf(watched).outputTokenIds.at(0), expectedTokens({1, 2, 3}, kTokens, kVocab));
  for (const auto& [id, weight] : others) {
    EXPECT_EQ(resultOf(id).outputTokenIds.at(0),
              expectedTokens({4, 5}, 12, kVocab, fakeComposition({{"red-4", weight}, {"blue-4", 1.0f}})));
  }
  EXPECT_EQ(steps, kTokens) << "it has a token in each step";
  EXPECT_GE(composed_rows, kTokens / 8 - 1);
  EXPECT_LE(composed_rows, kTokens / 6) << "each costs 8 reads, and all together as many as the rest of the steps";
}

}  // namespace
}  // namespace chorus
