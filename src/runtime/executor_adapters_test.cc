// Adapters through the executor's loop: by directory, by tensors, loading, eviction, generations.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::DataType;
using executor::LoraConfig;
using executor::Request;
using executor::Tensor;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeComposition;
using testing::fakeSource;
using testing::Gate;

class ExecutorAdaptersTest : public CoreFixture {
 protected:
  static Request withAdapter(executor::VecTokens prompt, int32_t max_tokens, uint64_t task_id) {
    Request r = request(std::move(prompt), max_tokens);
    r.setLoraConfig(LoraConfig(task_id));
    return r;
  }
  // A request with tensors that the fixture's loader reads as content "tensors<number>".
  static Request withTensors(executor::VecTokens prompt, int32_t max_tokens, uint64_t task_id, int32_t number) {
    const int32_t rows[] = {1, 0, 2};
    Request r = request(std::move(prompt), max_tokens);
    r.setLoraConfig(LoraConfig(task_id, Tensor::copyOf(DataType::kINT32, &number, {1, 1}),
                               Tensor::copyOf(DataType::kINT32, rows, {1, 3})));
    return r;
  }
};

TEST_F(ExecutorAdaptersTest, RequestsForDifferentAdaptersShareSteps) {
  Gate gate;
  int most_adapters = 0;
  before_step = [&](int, const StepInput& input) {
    gate.pass();
    most_adapters = std::max(most_adapters, static_cast<int>(input.adapters.size()));
  };
  start();
  core->registerAdapter(0, fakeSource("red"));
  core->registerAdapter(1, fakeSource("blue"));
  answer(withAdapter({1}, 1, 0));
  answer(withAdapter({1}, 1, 1));
  gate.close();
  const auto base = enqueue(request({1, 2}, 20));
  gate.awaitArrivals(3);
  const auto red = enqueue(withAdapter({1, 2}, 20, 0)), blue = enqueue(withAdapter({1, 2}, 20, 1));
  gate.open();
  EXPECT_EQ(resultOf(base).outputTokenIds.at(0), expectedTokens({1, 2}, 20, kVocab));
  EXPECT_EQ(resultOf(red).outputTokenIds.at(0), expectedTokens({1, 2}, 20, kVocab, "red"));
  EXPECT_EQ(resultOf(blue).outputTokenIds.at(0), expectedTokens({1, 2}, 20, kVocab, "blue"));
  core->shutdown();
  EXPECT_EQ(most_adapters, 2);
}

TEST_F(ExecutorAdaptersTest, AnUnknownTaskIsRefusedWithTheExactText) {
  start();
  EXPECT_EQ(errorOf(enqueue(withAdapter({1}, 2, 77))),
            "LoRA task 77 not found in cache. Please send LoRA weights with request");
  Request of_client = withAdapter({1}, 2, 77);
  of_client.setClientId(9);
  EXPECT_EQ(finish(enqueue(of_client)).at(0).getClientId(), 9u);
  core->registerAdapter(77, fakeSource("red"));
  EXPECT_EQ(answer(withAdapter({1}, 2, 77)), expectedTokens({1}, 2, kVocab, "red"));
  core->unregisterAdapter(77);
  EXPECT_EQ(errorOf(enqueue(withAdapter({1}, 2, 77))),
            "LoRA task 77 not found in cache. Please send LoRA weights with request");
}

TEST_F(ExecutorAdaptersTest, TensorsAreCachedUnderTheirTask) {
  start();
  EXPECT_EQ(answer(withTensors({1}, 3, 5, 11)), expectedTokens({1}, 3, kVocab, "tensors11"));
  EXPECT_EQ(answer(withAdapter({2}, 3, 5)), expectedTokens({2}, 3, kVocab, "tensors11"));
  EXPECT_EQ(answer(withTensors({3}, 3, 5, 11)), expectedTokens({3}, 3, kVocab, "tensors11"));
  EXPECT_EQ(loads, 1) << "the same tensors again are the same adapter";
  EXPECT_EQ(answer(withTensors({3}, 3, 5, 12)), expectedTokens({3}, 3, kVocab, "tensors12"));
  EXPECT_EQ(answer(withAdapter({2}, 3, 5)), expectedTokens({2}, 3, kVocab, "tensors12"));
}

TEST_F(ExecutorAdaptersTest, EvictedTensorsMustBeSentAgain) {
  options.adapter_row_bytes = [](int64_t, int64_t width, bool) { return width; };
  setAdapterRoom(2);
  start();
  answer(withTensors({1}, 1, 1, 1));
  answer(withTensors({1}, 1, 2, 2));
  answer(withTensors({1}, 1, 3, 3));
  EXPECT_EQ(errorOf(enqueue(withAdapter({1}, 1, 1))),
            "LoRA task 1 not found in cache. Please send LoRA weights with request");
  EXPECT_EQ(answer(withAdapter({1}, 2, 3)), expectedTokens({1}, 2, kVocab, "tensors3"));
}

TEST_F(ExecutorAdaptersTest, DirectoriesAreLoadedAgainAfterEviction) {
  setAdapterRoom(2);
  start();
  for (uint64_t id = 1; id <= 3; ++id) core->registerAdapter(id, fakeSource(fmt::format("a{}", id)));
  for (int round = 0; round < 3; ++round) {
    for (uint64_t id = 1; id <= 3; ++id) {
      EXPECT_EQ(answer(withAdapter({4}, 2, id)), expectedTokens({4}, 2, kVocab, fmt::format("a{}", id)));
    }
  }
  EXPECT_EQ(loads, 9);
}

TEST_F(ExecutorAdaptersTest, LoadingBlocksNobodyElse) {
  Gate gate;
  gate.close();
  const auto plain = load;
  load = [&, plain](const AdapterSource& source) {
    if (source.directory == "slow") gate.pass();
    return plain(source);
  };
  options.adapter_workers = 2;
  start();
  core->registerAdapter(1, fakeSource("slow"));
  core->registerAdapter(2, fakeSource("quick"));
  const auto slow = enqueue(withAdapter({1}, 2, 1));
  EXPECT_EQ(answer(request({1}, 5)), expectedTokens({1}, 5, kVocab));
  EXPECT_EQ(answer(withAdapter({1}, 5, 2)), expectedTokens({1}, 5, kVocab, "quick"));
  EXPECT_EQ(core->responses().numReady(slow), 0);
  gate.open();
  EXPECT_EQ(resultOf(slow).outputTokenIds.at(0), expectedTokens({1}, 2, kVocab, "slow"));
}

TEST_F(ExecutorAdaptersTest, AFailedLoadFailsOnlyThoseWhoWaitForIt) {
  Gate gate;
  gate.close();
  breakLoad("broken", gate, "adapter_model.safetensors is truncated");
  start();
  core->registerAdapter(1, fakeSource("broken"));
  core->registerAdapter(2, fakeSource("whole"));
  const auto first = enqueue(withAdapter({1}, 2, 1)), second = enqueue(withAdapter({2}, 2, 1));
  const auto other = enqueue(withAdapter({1}, 2, 2));
  gate.open();
  const std::string text = "Error storing task=1 in PEFT cache -- adapter_model.safetensors is truncated";
  EXPECT_EQ(errorOf(first), text);
  const auto fault = faultOf(second);
  EXPECT_EQ(fault.taskId, 1u);
  EXPECT_EQ(fault.reason, "adapter_model.safetensors is truncated");
  EXPECT_TRUE(fault.loading);
  EXPECT_EQ(resultOf(other).outputTokenIds.at(0), expectedTokens({1}, 2, kVocab, "whole"));
}

TEST_F(ExecutorAdaptersTest, AnAdapterThatMakesLogitsNotFiniteIsNamed) {
  after_row = [](const std::vector<int32_t>& history, std::span<float> logits) {
    if (history[0] == 13 && history.size() == 4) logits[7] = std::nanf("");
  };
  start();
  core->registerAdapter(1, fakeSource("a"));
  const auto all = finish(enqueue(withAdapter({13, 1}, 8, 1)));
  EXPECT_EQ(all.back().getErrorCode(), executor::ResponseErrorCode::kINVALID_ARGUMENT);
  EXPECT_EQ(all.back().getErrorMsg(), "LoRA task 1 makes the logits infinite or NaN: no token can be chosen");
  ASSERT_TRUE(all.back().getAdapterFault());
  EXPECT_EQ(all.back().getAdapterFault()->taskId, 1U);
  EXPECT_FALSE(all.back().getAdapterFault()->loading);
}

TEST_F(ExecutorAdaptersTest, AnAdapterLargerThanTheCacheIsRefused) {
  start();
  core->registerAdapter(1, fakeSource("huge-101"));
  EXPECT_EQ(errorOf(enqueue(withAdapter({1}, 2, 1))), "PEFT Cache is full. Could not store taskId=1");
  const auto fault = faultOf(enqueue(withAdapter({1}, 2, 1)));
  EXPECT_EQ(fault.taskId, 1u);
  EXPECT_FALSE(fault.loading);
}

TEST_F(ExecutorAdaptersTest, AnAdapterThatDoesNotFitWaitsForRoom) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  setAdapterRoom(10);
  start();
  core->registerAdapter(1, fakeSource("most-8"));
  core->registerAdapter(2, fakeSource("some-5"));
  const auto first = enqueue(withAdapter({1}, 30, 1));
  const auto waits = enqueue(withAdapter({2}, 3, 2));
  const auto passes = enqueue(request({3}, 3)), shares = enqueue(withAdapter({4}, 3, 1));
  gate.awaitArrivals(1);
  gate.open();
  EXPECT_EQ(resultOf(passes).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab));
  EXPECT_EQ(resultOf(shares).outputTokenIds.at(0), expectedTokens({4}, 3, kVocab, "most-8"));
  EXPECT_EQ(resultOf(waits).outputTokenIds.at(0), expectedTokens({2}, 3, kVocab, "some-5"));
  EXPECT_EQ(resultOf(first).outputTokenIds.at(0), expectedTokens({1}, 30, kVocab, "most-8"));
}

TEST_F(ExecutorAdaptersTest, AnAdapterThatFindsNoRoomIsRejectedIfThatIsAsked) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  setAdapterRoom(10);
  options.reject_when_full = true;
  start();
  core->registerAdapter(1, fakeSource("most-8"));
  core->registerAdapter(2, fakeSource("some-5"));
  core->registerAdapter(3, fakeSource("huge-11"));
  const auto first = enqueue(withAdapter({1}, 30, 1));
  gate.awaitArrivals(1);
  const auto busy = enqueue(withAdapter({2}, 3, 2)), too_large = enqueue(withAdapter({2}, 3, 3));
  const auto base = enqueue(request({3}, 3)), shares = enqueue(withAdapter({4}, 3, 1));
  gate.open();
  const auto rejected = finish(busy);
  EXPECT_EQ(rejected.back().getErrorMsg(), "PEFT Cache is full. Could not store taskId=2");
  EXPECT_EQ(rejected.back().getErrorCode(), executor::ResponseErrorCode::kBUSY);
  EXPECT_EQ(finish(too_large).back().getErrorCode(), executor::ResponseErrorCode::kTOO_LARGE);
  EXPECT_EQ(resultOf(base).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab));
  EXPECT_EQ(resultOf(shares).outputTokenIds.at(0), expectedTokens({4}, 3, kVocab, "most-8"));
  EXPECT_EQ(resultOf(first).outputTokenIds.at(0), expectedTokens({1}, 30, kVocab, "most-8"));
  EXPECT_EQ(answer(withAdapter({2}, 3, 2)), expectedTokens({2}, 3, kVocab, "some-5")) << "the other one is idle now";
}

// A load cannot be stopped, but an adapter that nobody uses any more is no reason to reject a request.
TEST_F(ExecutorAdaptersTest, LoadsOfCancelledRequestsAreWaitedFor) {
  Gate gate;
  gate.close();
  load = [&gate, plain = load](const AdapterSource& source) {
    if (source.directory == "slow-8") gate.pass();
    return plain(source);
  };
  setAdapterRoom(10);
  options.reject_when_full = true;
  options.adapter_workers = 2;
  start();
  core->registerAdapter(1, fakeSource("slow-8"));
  core->registerAdapter(2, fakeSource("some-5"));
  core->registerAdapter(3, fakeSource("small-2"));
  const auto cancelled = enqueue(withAdapter({1}, 3, 1));
  gate.awaitArrivals(1);
  EXPECT_EQ(errorOf(enqueue(withAdapter({2}, 3, 2))), "PEFT Cache is full. Could not store taskId=2");
  core->cancel(cancelled);
  finish(cancelled);
  const auto waits = enqueue(withAdapter({2}, 3, 2));
  EXPECT_EQ(answer(withAdapter({3}, 3, 3)), expectedTokens({3}, 3, kVocab, "small-2"))
      << "the other one holds up nobody";
  gate.open();
  EXPECT_EQ(resultOf(waits).outputTokenIds.at(0), expectedTokens({2}, 3, kVocab, "some-5"));
}

TEST_F(ExecutorAdaptersTest, ReportsWhereAdaptersAre) {
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
TEST_F(ExecutorAdaptersTest, AListOfManyAdaptersIsMadeInSeveralSteps) {
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

TEST_F(ExecutorAdaptersTest, TheStateOfOneAdapter) {
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
TEST_F(ExecutorAdaptersTest, RequestsGetTheContentFromBeforeLaterChanges) {
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

TEST_F(ExecutorAdaptersTest, TensorsThatCameBeforeAChangeDoNotUndoIt) {
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

// Capacity in elements is proportional to the rank: room for three adapters of rank 4 holds twelve of rank 1, whatever
// their size in bytes.
TEST_F(ExecutorAdaptersTest, RoomGoesByTheTrueRank) {
  options.adapter_host_capacity = options.scheduler.adapter_budget = {AdapterSize::kUnlimited, 12};
  load = [plain = load](const AdapterSource& source) {
    auto parts = std::make_shared<PreparedAdapter>(*plain(source));
    parts->elements = source.elements;
    return parts;
  };
  start();
  const auto answerWith = [&](uint64_t id, int64_t elements) {
    auto source = std::make_shared<AdapterSource>(*fakeSource(fmt::format("a{}", id)));
    source->elements = elements;
    core->registerAdapter(id, source);
    EXPECT_EQ(answer(withAdapter({4}, 2, id)), expectedTokens({4}, 2, kVocab, fmt::format("a{}", id)));
  };
  for (uint64_t id = 1; id <= 3; ++id) answerWith(id, 4);
  EXPECT_EQ(core->adapterCacheStats().host.residentAdapters, 3);
  EXPECT_EQ(core->adapterCacheStats().host.evictions, 0);
  for (uint64_t id = 4; id <= 15; ++id) answerWith(id, 1);
  core->shutdown();
  const auto stats = core->adapterCacheStats();
  EXPECT_EQ(stats.host.residentAdapters, 12);
  EXPECT_EQ(stats.host.evictions, 3);
  EXPECT_EQ(stats.device.residentAdapters, 12);
  EXPECT_EQ(loads, 15);
}

// Tensors that failed to load are not known to later requests, even while a waiting request still refers to them.
TEST_F(ExecutorAdaptersTest, TensorsThatDidNotLoadAreNotKnown) {
  Gate large, tensors;
  large.close();
  tensors.close();
  load = [&, plain = load](const AdapterSource& source) {
    (source.reloadable() ? large : tensors).pass();
    if (!source.reloadable()) fail(ErrorCode::kCorrupt, "they are none");
    return plain(source);
  };
  options.adapter_workers = 2;
  options.adapter_row_bytes = [](int64_t, int64_t width, bool) { return width; };
  setAdapterRoom(1000);
  start();
  core->registerAdapter(1, fakeSource("large-700"));
  core->registerAdapter(2, fakeSource("some-500"));
  const auto runs = enqueue(withAdapter({1}, 2, 1));
  large.awaitArrivals(1);
  const auto fails = enqueue(withTensors({1}, 2, 5, 11));
  tensors.awaitArrivals(1);
  Request both = request({1}, 2);
  both.setLoraComposition({{5, 1.0f}, {2, 1.0f}});
  const auto waits = enqueue(both);
  answer(request({3}, 2));
  tensors.open();
  EXPECT_EQ(errorOf(fails), "Error storing task=5 in PEFT cache -- they are none");
  EXPECT_EQ(errorOf(enqueue(withAdapter({1}, 2, 5))),
            "LoRA task 5 not found in cache. Please send LoRA weights with request");
  large.open();
  EXPECT_EQ(resultOf(runs).outputTokenIds.at(0), expectedTokens({1}, 2, kVocab, "large-700"));
  EXPECT_EQ(errorOf(waits), "Error storing task=5 in PEFT cache -- they are none");
}

TEST_F(ExecutorAdaptersTest, ANewGenerationServesLaterRequestsOnly) {
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

// Small adapters that are always in use must not keep a large one out for ever.
TEST_F(ExecutorAdaptersTest, ALargeAdapterIsNotStarved) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  setAdapterRoom(4);
  options.scheduler.max_bypasses = 8;
  start();
  for (uint64_t id = 1; id <= 3; ++id) core->registerAdapter(id, fakeSource(fmt::format("small{}", id)));
  core->registerAdapter(9, fakeSource("large-4"));
  std::mutex mutex;
  std::condition_variable done;
  std::vector<bool> order;  // in which requests ended; true: the one with the large adapter
  const auto add = [&](uint64_t task_id) {
    const Request r = withAdapter({1, 2, 3}, 5, task_id);
    core->enqueue({&r, 1}, [&, task_id](const executor::Response& response) {
      const std::lock_guard lock(mutex);
      EXPECT_FALSE(response.hasError());
      order.push_back(task_id == 9);
      done.notify_one();
    });
  };
  constexpr size_t kSmall = 100;
  const auto first = enqueue(request({1}, 2));
  gate.awaitArrivals(1);
  for (size_t i = 0; i < kSmall; ++i) {
    add(1 + i % 3);
    if (i == 4) add(9);
  }
  gate.open();
  resultOf(first);
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return order.size() == kSmall + 1; });
  EXPECT_LT(std::find(order.begin(), order.end(), true) - order.begin(), 40);
}

TEST_F(ExecutorAdaptersTest, CancellingWhileLoading) {
  Gate gate;
  gate.close();
  const auto plain = load;
  load = [&, plain](const AdapterSource& source) {
    gate.pass();
    return plain(source);
  };
  start();
  core->registerAdapter(1, fakeSource("a"));
  const auto waiting = enqueue(withAdapter({1}, 2, 1));
  gate.awaitArrivals(1);
  core->cancel(waiting);
  EXPECT_EQ(resultOf(waiting).finishReasons.at(0), executor::FinishReason::kCANCELLED);
  gate.open();
  EXPECT_EQ(answer(withAdapter({1}, 2, 1)), expectedTokens({1}, 2, kVocab, "a"));
  EXPECT_EQ(loads, 1);
}

// A load that is in progress when the executor is destroyed may still use the network.
TEST_F(ExecutorAdaptersTest, TheNetworkOutlivesLoads) {
  Gate gate;
  gate.close();
  auto owned_by_network = std::make_shared<int>();
  const std::weak_ptr<int> network = owned_by_network;
  before_step = [owned_by_network](int, const StepInput&) {};
  std::atomic<bool> outlived = false;
  load = [&, plain = load](const AdapterSource& source) {
    gate.pass();
    outlived = !network.expired();
    return plain(source);
  };
  start();
  before_step = nullptr;
  owned_by_network = nullptr;
  core->registerAdapter(1, fakeSource("red"));
  executor::Request adapted = request({1}, 1);
  adapted.setLoraConfig(executor::LoraConfig(1));
  enqueue(adapted);
  gate.awaitArrivals(1);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  core.reset();
  opener.join();
  EXPECT_TRUE(outlived);
}

}  // namespace
}  // namespace chorus
