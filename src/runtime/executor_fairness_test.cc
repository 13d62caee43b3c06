// Deadlines of the queue, and shares by weight, in the executor over a fake network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
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
using testing::expectedTokens;
using testing::Gate;

class ExecutorFairnessTest : public CoreFixture {
 protected:
  // Runs several sequences of one client, and beside them a sequence of another client from when a step has passed the
  // gate, which is closed. All of them get the expected tokens.
  void runBeside(const executor::VecTokens& prompt, int32_t max_tokens, int32_t num_sequences, int32_t neighbour_tokens,
                 Gate& gate) {
    Request many = request(prompt, max_tokens), neighbour = request({1, 2, 3}, neighbour_tokens);
    executor::SamplingConfig sampling;
    sampling.setNumReturnSequences(num_sequences);
    many.setSamplingConfig(sampling);
    many.setClientId(1);
    neighbour.setClientId(2);
    const auto first = enqueue(many);
    gate.awaitArrivals(1);
    const auto second = enqueue(neighbour);
    gate.open();
    EXPECT_EQ(resultOf(second).outputTokenIds.at(0), expectedTokens({1, 2, 3}, neighbour_tokens, kVocab));
    const std::vector<int32_t> expected = expectedTokens(prompt, max_tokens, kVocab);
    for (const auto& tokens : finish(first)) {
      if (tokens.getResult().isSequenceFinal) {
        EXPECT_EQ(tokens.getResult().outputTokenIds.at(0), expected);
      }
    }
  }
};

TEST_F(ExecutorFairnessTest, QueueTimeEndsOnlyWhatHasNotBegun) {
  Gate gate;
  gate.close();
  std::atomic<bool> runs_first = false;
  before_step = [&](int, const StepInput&) {
    runs_first = true;
    gate.pass();
    std::this_thread::sleep_for(milliseconds(2));
  };
  options.scheduler.max_batch_size = 1;
  options.max_queue_size = 2;
  start();
  constexpr milliseconds kQueueTime{30};
  Request first = request({1}, 60), second = request({2}, 60);
  first.setQueueTimeMs(kQueueTime);
  second.setQueueTimeMs(kQueueTime);
  // On a busy machine the executor may need longer than that to begin the first one. Then another takes its place.
  executor::IdType runs = 0;
  while (!runs_first) {
    runs = enqueue(first);
    EXPECT_TRUE(eventually([&] { return runs_first || core->responses().numReady(runs) > 0; }));
    if (!runs_first) resultOf(runs);
  }
  const auto waits = enqueue(second);
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(kQueueTime);
  gate.open();
  const auto ended = resultOf(waits);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kQueueTime);
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

// A client with seven long contexts, alone and beside a sequence of another client.
TEST_F(ExecutorFairnessTest, LongContextsSlowOtherClientsOnlySoFar) {
  constexpr int32_t kLong = 20'000, kAlone = 10, kBeside = 40;
  options.requests.max_input_len = options.requests.max_seq_len = kLong + 1000;
  options.scheduler.max_batch_size = 8;
  options.scheduler.max_num_tokens = 4096;
  options.scheduler.kv = {.tokens_per_block = 64};
  options.scheduler.kv_blocks = 400;
  // The attention of such a row takes six reads, times the measured price, which is at least 1/8.
  options.base_bytes = kLong / 6;
  options.kv_block_bytes = options.scheduler.kv.tokens_per_block;
  Gate gate;
  std::atomic<int> alone = 0, beside = 0, rows_beside = 0;
  before_step = [&](int, const StepInput& input) {
    int rows = 0;
    bool has_neighbour = false;
    for (const SequenceSpan& sequence : input.sequences) {
      rows += sequence.first_position >= kLong ? 1 : 0;
      has_neighbour |= sequence.first_position + sequence.num_rows < 100;
    }
    if (has_neighbour) {
      ++beside;
      rows_beside += rows;
    } else if (beside == 0 && (rows == 7 || alone > 0)) {
      EXPECT_EQ(rows, 7) << "a client alone has a row of each sequence in each step";
      if (++alone == kAlone) gate.pass();
    }
  };
  gate.close();
  start();
  runBeside(executor::VecTokens(kLong, 7), 60, 7, kBeside, gate);
  EXPECT_EQ(beside, kBeside) << "the neighbour has a row in each step";
  EXPECT_LE(rows_beside, 2 * kBeside);
  EXPECT_GE(rows_beside, 1);
}

// A client with 16 choices, alone and beside a sequence of another client, where a row takes a third of a read.
TEST_F(ExecutorFairnessTest, ManyChoicesSlowOtherClientsOnlySoFar) {
  constexpr int32_t kChoices = 16, kPrompt = 40, kTokens = 60, kBeside = 30, kAlone = 10;
  options.requests.max_seq_len = kPrompt + kTokens;
  options.scheduler.max_batch_size = 32;
  options.scheduler.max_num_tokens = 64;
  options.scheduler.kv_blocks = 1000;
  Gate gate;
  std::atomic<int> alone = 0, beside = 0, rows_beside = 0;
  before_step = [&](int, const StepInput& input) {
    int rows = 0;
    bool has_neighbour = false;
    for (const SequenceSpan& sequence : input.sequences) {
      rows += sequence.first_position >= kPrompt ? 1 : 0;
      has_neighbour |= sequence.first_position + sequence.num_rows < kPrompt;
    }
    if (has_neighbour && rows > 0) {
      ++beside;
      rows_beside += rows;
    } else if (beside == 0 && rows == kChoices && ++alone == kAlone) {
      gate.pass();
    }
    std::this_thread::sleep_for(milliseconds(4) + milliseconds(2) * std::ssize(input.tokens));
  };
  start();
  resultOf(enqueue(request({1, 2}, 20)));  // its steps show how long one row takes
  gate.close();
  runBeside(executor::VecTokens(kPrompt, 7), kTokens, kChoices, kBeside, gate);
  EXPECT_EQ(beside, kBeside) << "the neighbour has a row in each step, and the choices have some";
  EXPECT_LE(rows_beside, 11 * kBeside) << "about seven rows take as long as two clients and one more alone";
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
