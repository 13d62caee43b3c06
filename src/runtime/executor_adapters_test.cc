// Adapters through the executor's loop: by directory, by tensors, room, eviction.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/testing/adapters_fixture.h"

namespace chorus {
namespace {

using executor::Request;
using testing::expectedTokens;
using testing::fakeSource;
using testing::Gate;

class ExecutorAdaptersTest : public testing::AdaptersFixture {};

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

}  // namespace
}  // namespace chorus
