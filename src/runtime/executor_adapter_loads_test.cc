// Loads of adapters beside the executor's loop: what waits for them, failures, cancelled requests, the end.
#include <gtest/gtest.h>

#include "runtime/testing/adapters_fixture.h"

namespace chorus {
namespace {

using executor::Request;
using testing::expectedTokens;
using testing::fakeSource;
using testing::Gate;

class ExecutorAdapterLoadsTest : public testing::AdaptersFixture {};

TEST_F(ExecutorAdapterLoadsTest, LoadingBlocksNobodyElse) {
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

TEST_F(ExecutorAdapterLoadsTest, AFailedLoadFailsOnlyThoseWhoWaitForIt) {
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

// A load cannot be stopped, but an adapter that nobody uses any more is no reason to reject a request.
TEST_F(ExecutorAdapterLoadsTest, LoadsOfCancelledRequestsAreWaitedFor) {
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

// Tensors that failed to load are not known to later requests, even while a waiting request still refers to them.
TEST_F(ExecutorAdapterLoadsTest, TensorsThatDidNotLoadAreNotKnown) {
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

TEST_F(ExecutorAdapterLoadsTest, CancellingWhileLoading) {
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
TEST_F(ExecutorAdapterLoadsTest, TheNetworkOutlivesLoads) {
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
