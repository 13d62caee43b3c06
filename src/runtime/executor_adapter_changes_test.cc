// Changes of adapters, and the states that the executor reports.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/testing/adapters_fixture.h"

namespace chorus {
namespace {

using executor::Request;
using testing::expectedTokens;
using testing::fakeComposition;
using testing::fakeSource;
using testing::Gate;

class ExecutorAdapterChangesTest : public testing::AdaptersFixture {};

TEST_F(ExecutorAdapterChangesTest, ReportsWhereAdaptersAre) {
  using Place = executor::AdapterState::Place;
  Gate gate;
  gate.close();
  load = [&gate, plain = load](const AdapterSource& source) {
    gate.pass();
    return plain(source);
  };
  start();
  core->registerAdapter(2, fakeSource("two-3"));
  core->registerAdapter(1, fakeSource("one-5"));
  core->registerAdapter(3, fakeSource("gone"));
  core->unregisterAdapter(3);
  auto states = core->adapterStates();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].taskId, 1u);
  EXPECT_EQ(states[0].place, Place::kDISK);
  EXPECT_EQ(states[0].bytes, 5);
  EXPECT_EQ(states[1].contentHash, "two-3");
  const auto running = enqueue(withAdapter({1}, 3, 1));
  gate.awaitArrivals(1);
  states = core->adapterStates();
  EXPECT_EQ(states[0].place, Place::kLOADING);
  EXPECT_EQ(states[0].users, 1);
  EXPECT_EQ(states[1].place, Place::kDISK);
  gate.open();
  resultOf(running);
  states = core->adapterStates();
  EXPECT_EQ(states[0].place, Place::kDEVICE) << "idle adapters stay in memory";
  EXPECT_EQ(states[0].users, 0);
  core->shutdown();
  EXPECT_TRUE(core->adapterStates().empty());
}

// No step may wait until the states of all adapters are copied.
TEST_F(ExecutorAdapterChangesTest, AListOfManyAdaptersIsMadeInSeveralSteps) {
  constexpr size_t kPortions = 4, kAdapters = kPortions * Admission::kStatesPerStep;
  std::atomic<int> steps = 0;
  before_step = [&](int step, const StepInput&) {
    steps = step;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  start();
  for (size_t i = 0; i < kAdapters; ++i) core->registerAdapter(3 * i, fakeSource(fmt::format("a{}", i)));
  std::vector<executor::AdapterState> states;
  EXPECT_TRUE(eventually([&] {  // on a busy machine the request may end first
    const int idle = steps;
    const auto running = enqueue(request({1}, 60));
    EXPECT_TRUE(eventually([&] { return steps > idle; }));
    const int before = steps;
    states = core->adapterStates();
    const int during = steps - before;
    core->cancel(running);
    finish(running);
    return during >= static_cast<int>(kPortions) - 1;
  }));
  ASSERT_EQ(states.size(), kAdapters);
  for (size_t i = 0; i < kAdapters; ++i) {
    ASSERT_EQ(states[i].taskId, 3 * i);
    ASSERT_EQ(states[i].contentHash, fmt::format("a{}", i));
  }
}

TEST_F(ExecutorAdapterChangesTest, TheStateOfOneAdapter) {
  start();
  core->registerAdapter(2, fakeSource("two-3"));
  core->registerAdapter(4, fakeSource("four"));
  EXPECT_EQ(core->adapterState(2).value().bytes, 3);
  EXPECT_EQ(core->adapterState(4).value().contentHash, "four");
  EXPECT_FALSE(core->adapterState(3)) << "a later task is another one";
  EXPECT_FALSE(core->adapterState(5));
  core->registerAdapter(std::numeric_limits<uint64_t>::max(), fakeSource("last"));
  EXPECT_EQ(core->adapterStates().size(), 3u);
  core->unregisterAdapter(2);
  EXPECT_FALSE(core->adapterState(2));
  core->shutdown();
  EXPECT_FALSE(core->adapterState(4));
}

// Many requests wait to be admitted when their adapter changes. Each gets the content that it had when the request
// came, and no round admits more of them for that reason.
TEST_F(ExecutorAdapterChangesTest, RequestsGetTheContentFromBeforeLaterChanges) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  core->registerAdapter(1, fakeSource("red"));
  const auto first = enqueue(request({1}, 40));
  gate.awaitArrivals(1);
  std::vector<executor::IdType> red, blue, gone, green;
  Request composed = request({3}, 2);
  composed.setLoraComposition({{1, 0.5f}});
  const auto add = [&](std::vector<executor::IdType>& ids) {
    ids = core->enqueue(std::vector<Request>(100, withAdapter({2}, 2, 1)), nullptr);
    ids.push_back(enqueue(composed));
  };
  add(red);
  core->registerAdapter(1, fakeSource("blue"));
  add(blue);
  core->unregisterAdapter(1);
  add(gone);
  core->registerAdapter(1, fakeSource("green"));
  add(green);
  gate.open();
  const auto expectContent = [&](std::vector<executor::IdType>& ids, const std::string& content) {
    EXPECT_EQ(resultOf(ids.back()).outputTokenIds.at(0),
              expectedTokens({3}, 2, kVocab, fakeComposition({{content, 0.5f}})));
    ids.pop_back();
    for (const auto id : ids) EXPECT_EQ(resultOf(id).outputTokenIds.at(0), expectedTokens({2}, 2, kVocab, content));
  };
  expectContent(red, "red");
  expectContent(blue, "blue");
  expectContent(green, "green");
  for (const auto id : gone) {
    EXPECT_EQ(errorOf(id), "LoRA task 1 not found in cache. Please send LoRA weights with request");
  }
  resultOf(first);
  int32_t before = 0;
  for (const auto& step : core->takeStats()) {
    EXPECT_LE(step.numQueuedRequests, before + 64) << step.iter;
    before = step.numQueuedRequests;
  }
  core->shutdown();
  EXPECT_EQ(core->adapterCacheStats().host.residentAdapters, 1) << "earlier contents are kept";
}

TEST_F(ExecutorAdapterChangesTest, TensorsThatCameBeforeAChangeDoNotUndoIt) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  const auto first = enqueue(request({1}, 2));
  gate.awaitArrivals(1);
  const auto others = core->enqueue(std::vector<Request>(100, request({2}, 2)), nullptr);
  const auto unknown = enqueue(withAdapter({3}, 3, 5)), brought = enqueue(withTensors({3}, 3, 5, 11));
  const auto same = enqueue(withAdapter({4}, 3, 5)), again = enqueue(withTensors({5}, 3, 5, 11));
  const auto other = enqueue(withTensors({6}, 3, 5, 12));
  core->registerAdapter(5, fakeSource("red"));
  const auto red = enqueue(withAdapter({3}, 3, 5));
  core->unregisterAdapter(5);
  const auto gone = enqueue(withAdapter({3}, 3, 5));
  gate.open();
  EXPECT_NE(errorOf(unknown), "");
  EXPECT_EQ(resultOf(brought).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab, "tensors11"));
  EXPECT_EQ(resultOf(same).outputTokenIds.at(0), expectedTokens({4}, 3, kVocab, "tensors11"));
  EXPECT_EQ(resultOf(again).outputTokenIds.at(0), expectedTokens({5}, 3, kVocab, "tensors11"));
  EXPECT_EQ(resultOf(other).outputTokenIds.at(0), expectedTokens({6}, 3, kVocab, "tensors12"));
  EXPECT_EQ(resultOf(red).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab, "red"));
  EXPECT_NE(errorOf(gone), "");
  EXPECT_NE(errorOf(enqueue(withAdapter({3}, 3, 5))), "");
  resultOf(first);
  for (const auto id : others) resultOf(id);
}

TEST_F(ExecutorAdapterChangesTest, ANewGenerationServesLaterRequestsOnly) {
  Gate gate;
  gate.close();
  holdStep(1, gate);
  start();
  core->registerAdapter(1, fakeSource("old"));
  const auto before = enqueue(withAdapter({1}, 20, 1));
  gate.awaitArrivals(1);
  core->registerAdapter(1, fakeSource("new"));
  const auto after = enqueue(withAdapter({1}, 20, 1));
  gate.open();
  EXPECT_EQ(resultOf(before).outputTokenIds.at(0), expectedTokens({1}, 20, kVocab, "old"));
  EXPECT_EQ(resultOf(after).outputTokenIds.at(0), expectedTokens({1}, 20, kVocab, "new"));
}

}  // namespace
}  // namespace chorus
