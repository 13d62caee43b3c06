// The executor's loop over a fake network: request options and their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::FinishReason;
using executor::OutputConfig;
using executor::Request;
using executor::SamplingConfig;
using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::expectedTokens;
using testing::Gate;
using ::testing::HasSubstr;

using ExecutorCoreTest = CoreFixture;

TEST_F(ExecutorCoreTest, AnswersGreedily) {
  start();
  const executor::VecTokens prompt = {3, 1, 4, 1, 5, 9, 2};
  const auto result = resultOf(enqueue(request(prompt, 10)));
  EXPECT_EQ(result.outputTokenIds.at(0), expectedTokens(prompt, 10, kVocab));
  EXPECT_THAT(result.finishReasons, ElementsAre(FinishReason::kLENGTH));
  EXPECT_EQ(result.decodingIter, 10);
  EXPECT_TRUE(result.isFinal);
}

TEST_F(ExecutorCoreTest, OutputHoldsThePromptUnlessExcluded) {
  start();
  const executor::VecTokens prompt = {3, 1};
  const auto result = resultOf(enqueue(Request(prompt, 2)));
  ASSERT_EQ(result.outputTokenIds.at(0).size(), 4u);
  EXPECT_EQ(result.outputTokenIds.at(0)[0], 3);
}

TEST_F(ExecutorCoreTest, StreamsEveryTokenOnce) {
  start();
  const executor::VecTokens prompt = {8, 8};
  const auto expected = expectedTokens(prompt, 6, kVocab);
  const auto id = enqueue(request(prompt, 6, true));
  executor::VecTokens streamed;
  for (const auto& response : finish(id)) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    EXPECT_EQ(tokens.size(), 1u);
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(streamed, expected);
  Request all = request(prompt, 6, true);
  all.setReturnAllGeneratedTokens(true);
  EXPECT_EQ(finish(enqueue(all)).back().getResult().outputTokenIds.at(0), expected);
}

TEST_F(ExecutorCoreTest, CallbacksTakeTheResponses) {
  start();
  std::mutex mutex;
  std::condition_variable done;
  std::vector<executor::Response> got;
  const Request streaming = request({5}, 4, true);
  core->enqueue({&streaming, 1}, [&](const executor::Response& response) {
    const std::lock_guard lock(mutex);
    got.push_back(response);
    done.notify_one();
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return !got.empty() && got.back().getResult().isFinal; });
  EXPECT_EQ(got.size(), 4u);
  EXPECT_EQ(core->responses().numReady(std::nullopt), 0);
}

TEST_F(ExecutorCoreTest, EndsAtAnyEndId) {
  start();
  const executor::VecTokens prompt = {1, 2, 3};
  const auto expected = expectedTokens(prompt, 10, kVocab);
  const auto upTo = [&](int32_t token) {
    return executor::VecTokens(expected.begin(), std::find(expected.begin(), expected.end(), token) + 1);
  };
  Request by_end_id = request(prompt, 10);
  by_end_id.setEndId(expected[3]);
  auto result = resultOf(enqueue(by_end_id));
  EXPECT_EQ(result.outputTokenIds.at(0), upTo(expected[3]));
  EXPECT_THAT(result.finishReasons, ElementsAre(FinishReason::kEND_ID));
  Request by_extra = request(prompt, 10);
  by_extra.setEndId(-1);
  by_extra.setExtraEndIds({expected[5]});
  EXPECT_EQ(resultOf(enqueue(by_extra)).outputTokenIds.at(0), upTo(expected[5]));
  Request never = request(prompt, 10);
  never.setEndId(-1);
  EXPECT_EQ(resultOf(enqueue(never)).outputTokenIds.at(0), expected);
}

TEST_F(ExecutorCoreTest, EndsAtStopWordsOfTheGeneratedTokens) {
  start();
  const executor::VecTokens prompt = {1, 2, 3};
  const auto expected = expectedTokens(prompt, 8, kVocab);
  Request stopped = request(prompt, 8);
  // The first stop word must not match, because it begins with the prompt's last token.
  stopped.setStopWords({{3, expected[0]}, {expected[2], expected[3]}});
  const auto result = resultOf(enqueue(stopped));
  EXPECT_EQ(result.outputTokenIds.at(0), executor::VecTokens(expected.begin(), expected.begin() + 4));
  EXPECT_THAT(result.finishReasons, ElementsAre(FinishReason::kSTOP_WORDS));
}

TEST_F(ExecutorCoreTest, MinTokensHoldsTheEndBack) {
  start();
  const executor::VecTokens prompt = {1, 2, 3};
  Request held = request(prompt, 10);
  held.setEndId(expectedTokens(prompt, 1, kVocab)[0]);
  held.setSamplingConfig(SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, 5));
  EXPECT_GE(resultOf(enqueue(held)).outputTokenIds.at(0).size(), 5u);
}

TEST_F(ExecutorCoreTest, MaxTokensIsCutToTheSequenceLength) {
  start();
  const executor::VecTokens prompt(40, 7);
  const auto result = resultOf(enqueue(request(prompt, 1000)));
  EXPECT_EQ(result.outputTokenIds.at(0), expectedTokens(prompt, 24, kVocab));
}

TEST_F(ExecutorCoreTest, RefusesWhatItCannotServeInOneLine) {
  options.scheduler.chunked_context = false;
  start();
  EXPECT_EQ(errorOf(enqueue(request(executor::VecTokens(41, 1), 1))),
            "Prompt length (41) exceeds maximum input length (40). Set log level to info and check "
            "TRTGptModel logs for "
            "how maximum input length is set");
  EXPECT_EQ(errorOf(enqueue(request(executor::VecTokens(25, 1), 1))),
            "The number of context tokens (25) exceeds the limit value (24)");
  EXPECT_EQ(errorOf(enqueue(request({1, 50}, 1))),
            "Token 50 at position 1 of the prompt is not within the vocabulary [0, 50)");
  Request bad_end = request({1}, 1);
  bad_end.setEndId(50);
  EXPECT_EQ(errorOf(enqueue(bad_end)), "EndId (50) is not within acceptable range [-1, 50).");
  Request beams = request({1}, 1);
  beams.setSamplingConfig(SamplingConfig(2));
  EXPECT_EQ(errorOf(enqueue(beams)), "Requested beam width 2 is larger than configured max beam width 1");
  const auto refused = [&](const SamplingConfig& config) {
    Request r = request({1}, 1);
    r.setSamplingConfig(config);
    return errorOf(enqueue(r));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refused(SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, {}, {}, kInfinity)),
              HasSubstr("repetitionPenalty"));
  EXPECT_THAT(refused(SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::nanf(""))),
              HasSubstr("presencePenalty"));
  EXPECT_THAT(refused(SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, -kInfinity)),
              HasSubstr("frequencyPenalty"));
  EXPECT_THAT(refused(SamplingConfig(1, {}, {}, {}, 50)), HasSubstr("topPResetIds (50)"));
  EXPECT_THAT(refused(SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
                                     std::vector<int32_t>{1})),
              HasSubstr("beamWidthArray"));
  // Values that have no effect are accepted.
  EXPECT_EQ(refused(SamplingConfig(1, {}, {}, {}, {}, 1.0f, {}, {}, {}, {}, 1.0f, 0.0f, 0.0f)), "");
}

TEST_F(ExecutorCoreTest, LogProbsAndLogits) {
  start();
  executor::VecTokens prompt(30, 4);  // two chunks
  OutputConfig output;
  output.excludeInputFromOutput = output.returnLogProbs = true;
  output.returnContextLogits = output.returnGenerationLogits = true;
  const auto mate = enqueue(request({9, 9}, 20));
  const auto result = resultOf(enqueue(Request(prompt, 3, false, SamplingConfig(), output)));
  resultOf(mate);
  ASSERT_TRUE(result.contextLogits && result.generationLogits && result.logProbs);
  EXPECT_THAT(result.contextLogits->getShape(), ElementsAre(30, kVocab));
  EXPECT_THAT(result.generationLogits->getShape(), ElementsAre(1, 3, kVocab));
  const auto* context = static_cast<const float*>(result.contextLogits->getData());
  const auto* generation = static_cast<const float*>(result.generationLogits->getData());
  std::vector<float> expected(kVocab);
  for (size_t row = 0; row < prompt.size(); ++row) {
    testing::fakeLogits({prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(row) + 1}, 7, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), context + row * kVocab)) << "row " << row;
  }
  double cumulative = 0;
  for (size_t i = 0; i < 3; ++i) {
    testing::fakeLogits(prompt, 7, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), generation + i * kVocab)) << "token " << i;
    double sum = 0;
    for (const float x : expected) sum += std::exp(static_cast<double>(x));
    const int32_t token = result.outputTokenIds.at(0)[i];
    const double log_prob = static_cast<double>(expected[static_cast<size_t>(token)]) - std::log(sum);
    EXPECT_NEAR((*result.logProbs)[0][i], log_prob, 1e-5);
    cumulative += log_prob;
    prompt.push_back(token);
  }
  EXPECT_NEAR((*result.cumLogProbs)[0], cumulative, 1e-4);
}

TEST_F(ExecutorCoreTest, StreamedLogitsAreThoseOfTheTokensBesideThem) {
  start();
  OutputConfig output;
  output.returnGenerationLogits = true;
  Request streamed({5, 6}, 4, true, SamplingConfig(), output);
  std::vector<float> all;
  for (const auto& response : finish(enqueue(streamed))) {
    const auto& logits = *response.getResult().generationLogits;
    EXPECT_THAT(logits.getShape(), ElementsAre(1, 1, kVocab));
    const auto* values = static_cast<const float*>(logits.getData());
    all.insert(all.end(), values, values + logits.getSize());
  }
  streamed.setReturnAllGeneratedTokens(true);
  for (const auto& response : finish(enqueue(streamed))) {
    const auto& result = response.getResult();
    const auto tokens = static_cast<int64_t>(result.outputTokenIds.at(0).size());
    EXPECT_THAT(result.generationLogits->getShape(), ElementsAre(tokens, 1, kVocab));
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + tokens * kVocab,
                           static_cast<const float*>(result.generationLogits->getData())));
  }
}

TEST_F(ExecutorCoreTest, NotANumberFailsThatRequestOnly) {
  after_row = [](const std::vector<int32_t>& history, std::span<float> logits) {
    if (history[0] == 13 && history.size() == 4) logits[7] = std::nanf("");
  };
  start();
  const auto bad = enqueue(request({13, 1}, 8)), good = enqueue(request({12, 1}, 8));
  EXPECT_THAT(errorOf(bad), HasSubstr("not finite"));
  EXPECT_EQ(resultOf(good).outputTokenIds.at(0), expectedTokens({12, 1}, 8, kVocab));
}

TEST_F(ExecutorCoreTest, AFailedStepFailsThoseWhoRanAndTheLoopGoesOn) {
  Gate gate;
  gate.close();
  before_step = [&](int step, const StepInput&) {
    if (step == 0) gate.pass();
    if (step == 2) throw std::runtime_error("the network broke");
  };
  options.scheduler.max_batch_size = 2;
  start();
  const auto first = enqueue(request({1}, 8)), second = enqueue(request({2}, 8)), third = enqueue(request({3}, 8));
  gate.open();
  EXPECT_EQ(errorOf(first), "Encountered an error in forwardAsync function: the network broke");
  const std::string second_error = errorOf(second);
  EXPECT_EQ(second_error, "Encountered an error in forwardAsync function: the network broke");
  EXPECT_EQ(resultOf(third).outputTokenIds.at(0), expectedTokens({3}, 8, kVocab));
  EXPECT_EQ(resultOf(enqueue(request({4}, 8))).outputTokenIds.at(0), expectedTokens({4}, 8, kVocab));
}

TEST_F(ExecutorCoreTest, CancelsRunningAndQueued) {
  Gate gate;
  gate.close();
  before_step = [&](int, const StepInput&) { gate.pass(); };
  options.scheduler.max_batch_size = 1;
  start();
  const auto running = enqueue(request({1}, 30)), queued = enqueue(request({2}, 30)), other = enqueue(request({3}, 2));
  gate.awaitArrivals(1);
  core->cancel(running);
  core->cancel(queued);
  core->cancel(9999);
  gate.open();
  const auto cut = resultOf(running);
  EXPECT_THAT(cut.finishReasons, ElementsAre(FinishReason::kCANCELLED));
  EXPECT_EQ(cut.outputTokenIds.at(0), expectedTokens({1}, 1, kVocab));
  const auto never = resultOf(queued);
  EXPECT_THAT(never.finishReasons, ElementsAre(FinishReason::kCANCELLED));
  EXPECT_TRUE(never.outputTokenIds.at(0).empty());
  EXPECT_EQ(resultOf(other).outputTokenIds.at(0).size(), 2u);
}

TEST_F(ExecutorCoreTest, AllottedTimeEndsRunningAndQueued) {
  // 60 steps of 2 ms are more than the 40 ms that are allotted.
  before_step = [&](int, const StepInput&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  options.scheduler.max_batch_size = 1;
  start();
  Request timed = request({1}, 60), waiting = request({2}, 60);
  timed.setAllottedTimeMs(std::chrono::milliseconds(40));
  waiting.setAllottedTimeMs(std::chrono::milliseconds(1));
  const auto running = enqueue(timed), queued = enqueue(waiting);
  const auto cut = resultOf(running);
  EXPECT_THAT(cut.finishReasons, ElementsAre(FinishReason::kTIMED_OUT));
  EXPECT_LT(cut.outputTokenIds.at(0).size(), 60u);
  EXPECT_THAT(resultOf(queued).finishReasons, ElementsAre(FinishReason::kTIMED_OUT));
  EXPECT_EQ(resultOf(enqueue(request({3}, 3))).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab));
}

TEST_F(ExecutorCoreTest, AFullQueueRefusesAndRecovers) {
  Gate gate;
  gate.close();
  before_step = [&](int, const StepInput&) { gate.pass(); };
  options.scheduler.max_batch_size = 1;
  options.max_queue_size = 2;
  start();
  const auto first = enqueue(request({1}, 2));
  gate.awaitArrivals(1);
  const auto second = enqueue(request({2}, 2)), third = enqueue(request({3}, 2));
  EXPECT_FALSE(core->acceptsRequests());
  try {
    enqueue(request({4}, 2));
    ADD_FAILURE() << "the queue took a third";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Maximum queue size of 2 has been reached, please try again later");
  }
  gate.open();
  for (const auto id : {first, second, third}) resultOf(id);
  EXPECT_TRUE(core->acceptsRequests());
  resultOf(enqueue(request({4}, 2)));
}

TEST_F(ExecutorCoreTest, ShutdownCancelsAndRefuses) {
  Gate gate;
  gate.close();
  before_step = [&](int, const StepInput&) { gate.pass(); };
  options.scheduler.max_batch_size = 1;
  start();
  const auto running = enqueue(request({1}, 30)), queued = enqueue(request({2}, 30));
  gate.awaitArrivals(1);
  std::thread closer([&] { core->shutdown(); });
  while (core->acceptsRequests()) std::this_thread::yield();
  gate.open();
  closer.join();
  EXPECT_THAT(resultOf(running).finishReasons, ElementsAre(FinishReason::kCANCELLED));
  EXPECT_THAT(resultOf(queued).finishReasons, ElementsAre(FinishReason::kCANCELLED));
  try {
    enqueue(request({4}, 2));
    ADD_FAILURE() << "enqueued after shutdown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Shutdown called, cannot enqueue requests");
  }
}

TEST_F(ExecutorCoreTest, AwaitingAFinishedRequest) {
  start();
  const auto id = enqueue(request({1}, 1));
  resultOf(id);
  const auto again = core->responses().awaitOne(id, std::nullopt);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].getErrorMsg(), "ReqId " + std::to_string(id) + " has already been processed and was terminated.");
}

TEST_F(ExecutorCoreTest, AwaitsAnyAndSeveral) {
  start();
  EXPECT_TRUE(core->responses().awaitAny(std::chrono::milliseconds(1)).empty());
  const std::vector<Request> batch = {request({1}, 2), request({2}, 3)};
  const auto ids = core->enqueue(batch, nullptr);
  const auto each = core->responses().awaitEach(ids, std::nullopt);
  ASSERT_EQ(each.size(), 2u);
  EXPECT_EQ(each[0].at(0).getRequestId(), ids[0]);
  EXPECT_EQ(each[1].at(0).getResult().outputTokenIds.at(0), expectedTokens({2}, 3, kVocab));
  const auto more = core->enqueue(batch, nullptr);
  size_t got = 0;
  while (got < 2) got += core->responses().awaitAny(std::nullopt).size();
  EXPECT_EQ(got, 2u);
}

TEST_F(ExecutorCoreTest, StatisticsShowTheSharedSteps) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  options.iter_stats_max = 3;
  start();
  const auto first = enqueue(request({1, 2, 3}, 3));
  gate.awaitArrivals(1);
  const auto second = enqueue(request({4, 5}, 1));
  gate.open();
  resultOf(first);
  resultOf(second);
  core->shutdown();
  const auto stats = core->takeStats();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_EQ(stats[0].numContextRequests, 1);
  EXPECT_EQ(stats[0].numCtxTokens, 3);
  EXPECT_EQ(stats[1].numContextRequests, 1);
  EXPECT_EQ(stats[1].numGenRequests, 1);
  EXPECT_EQ(stats[1].kvCacheStats.value().usedNumBlocks, 2);
  EXPECT_EQ(stats[1].kvCacheStats.value().maxNumBlocks, 32);
  EXPECT_EQ(stats[2].numContextRequests, 0);
}

}  // namespace
}  // namespace chorus
