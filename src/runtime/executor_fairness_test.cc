// Deadlines of the queue, and shares by weight, in the executor over a fake network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::FairShare;
using executor::FinishReason;
using executor::Request;
using std::chrono::milliseconds;
using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::Gate;

class ExecutorFairnessTest : public CoreFixture {};

TEST_F(ExecutorFairnessTest, QueueTimeEndsOnlyWhatHasNotBegun) {
  before_step = [&](int, const StepInput&) { std::this_thread::sleep_for(milliseconds(2)); };
  options.scheduler.max_batch_size = 1;
  options.max_queue_size = 2;
  start();
  Request first = request({1}, 60), second = request({2}, 60);
  first.setQueueTimeMs(milliseconds(30));
  second.setQueueTimeMs(milliseconds(30));
  const auto runs = enqueue(first);
  const auto waits = enqueue(second);
  const auto begin = std::chrono::steady_clock::now();
  const auto ended = resultOf(waits);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(25));
  EXPECT_THAT(ended.finishReasons, ElementsAre(FinishReason::kTIMED_OUT));
  EXPECT_TRUE(ended.outputTokenIds.at(0).empty());
  // The place in the queue of the request that timed out is free.
  const auto third = enqueue(request({3}, 2)), fourth = enqueue(request({4}, 2));
  EXPECT_EQ(resultOf(runs).outputTokenIds.at(0).size(), 60u) << "it had begun, so it goes on";
  EXPECT_EQ(resultOf(third).outputTokenIds.at(0).size(), 2u);
  EXPECT_EQ(resultOf(fourth).outputTokenIds.at(0).size(), 2u);
}

TEST_F(ExecutorFairnessTest, TheEarlierOfBothDeadlinesCounts) {
  Gate gate;
  gate.close();
  before_step = [&](int, const StepInput&) { gate.pass(); };
  options.scheduler.max_batch_size = 1;
  start();
  const auto first = enqueue(request({1}, 3));
  gate.awaitArrivals(1);
  std::vector<executor::IdType> overdue;
  for (const bool by_queue : {false, true}) {
    Request waiting = request({2}, 3);
    waiting.setQueueTimeMs(by_queue ? milliseconds(0) : milliseconds(600'000));
    waiting.setAllottedTimeMs(by_queue ? milliseconds(600'000) : milliseconds(0));
    overdue.push_back(enqueue(waiting));
  }
  gate.open();
  for (const auto id : overdue) EXPECT_THAT(resultOf(id).finishReasons, ElementsAre(FinishReason::kTIMED_OUT));
  EXPECT_THAT(resultOf(first).finishReasons, ElementsAre(FinishReason::kLENGTH));
}

// One slot, requests of one token of prompt and one of answer: each costs 1 + 2 tokens. Group 1 has three times the
// weight of group 2, so its counter grows by 1 for each request, and that of group 2 by 3.
TEST_F(ExecutorFairnessTest, FreeSlotsFollowTheCounters) {
  Gate gate;
  gate.close();
  std::vector<int32_t> order;
  before_step = [&](int, const StepInput& input) {
    order.push_back(input.tokens.front());
    gate.pass();
  };
  options.scheduler.max_batch_size = 1;
  options.fairness = Fairness::kWeighted;
  start();
  std::vector<executor::IdType> ids = {enqueue(request({9}, 1))};  // a group of its own, by the missing client id
  gate.awaitArrivals(1);
  for (int i = 0; i < 8; ++i) {
    Request of_first = request({1}, 1);
    of_first.setFairShare(FairShare{.group = 1, .weight = 3});
    of_first.setClientId(7);
    ids.push_back(enqueue(of_first));
  }
  for (int i = 0; i < 4; ++i) {
    Request of_second = request({2}, 1);
    of_second.setFairShare(FairShare{.group = 2, .weight = 1});
    of_second.setClientId(7);
    ids.push_back(enqueue(of_second));
  }
  gate.open();
  for (const auto id : ids) EXPECT_EQ(resultOf(id).outputTokenIds.at(0).size(), 1u);
  EXPECT_THAT(order, ElementsAre(9, 1, 2, 1, 1, 2, 1, 1, 1, 2, 1, 1, 2));
}

TEST_F(ExecutorFairnessTest, SharesMeanNothingWithTurns) {
  Gate gate;
  gate.close();
  std::vector<int32_t> order;
  before_step = [&](int, const StepInput& input) {
    order.push_back(input.tokens.front());
    gate.pass();
  };
  options.scheduler.max_batch_size = 1;
  start();
  std::vector<executor::IdType> ids = {enqueue(request({9}, 1))};
  gate.awaitArrivals(1);
  for (const int32_t token : {1, 1, 1, 2, 2}) {
    Request asked = request({token}, 1);
    asked.setFairShare(FairShare{.group = 1, .weight = token == 1 ? 1000 : 1});
    asked.setClientId(static_cast<executor::IdType>(token));
    ids.push_back(enqueue(asked));
  }
  gate.open();
  for (const auto id : ids) resultOf(id);
  EXPECT_THAT(order, ElementsAre(9, 1, 2, 1, 2, 1));
}

}  // namespace
}  // namespace chorus
