// Several answers to one request: numReturnSequences without beams, through the executor's loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::FinishReason;
using executor::Request;
using executor::VecTokens;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::Gate;
using ::testing::HasSubstr;

class ExecutorSequencesTest : public CoreFixture {
 protected:
  static constexpr int32_t kPrompt = 22;

  static Request several(int32_t count, int32_t max_tokens, uint64_t seed = 11) {
    VecTokens prompt(kPrompt);
    for (int32_t i = 0; i < kPrompt; ++i) prompt[static_cast<size_t>(i)] = (i * i) % kVocab;
    Request r = request(std::move(prompt), max_tokens);
    executor::SamplingConfig config;
    config.setTemperature(1.5f);
    config.setTopP(0.95f);
    config.setSeed(seed);
    config.setNumReturnSequences(count);
    r.setSamplingConfig(config);
    return r;
  }
  // The answers by sequence index. Checks the sequence fields of every response.
  std::map<int32_t, VecTokens> answers(executor::IdType id, int32_t count) {
    std::map<int32_t, VecTokens> tokens;
    std::set<int32_t> ended;
    for (const auto& response : finish(id)) {
      EXPECT_EQ(response.getRequestId(), id);
      const auto& result = response.getResult();
      EXPECT_FALSE(ended.contains(result.sequenceIndex)) << "more of a sequence that has ended";
      if (result.isSequenceFinal) ended.insert(result.sequenceIndex);
      EXPECT_EQ(result.isFinal, ended.size() == static_cast<size_t>(count));
      auto& own = tokens[result.sequenceIndex];
      own.insert(own.end(), result.outputTokenIds.at(0).begin(), result.outputTokenIds.at(0).end());
    }
    return tokens;
  }
  int32_t contextTokens() {
    int32_t tokens = 0;
    for (const auto& step : core->takeStats()) tokens += step.numCtxTokens;
    return tokens;
  }
};

TEST_F(ExecutorSequencesTest, EachSequenceHasTheTokensOfASingleRequestWithItsSeed) {
  options.block_reuse = false;
  start();
  std::map<int32_t, VecTokens> alone;
  for (int32_t i = 0; i < 4; ++i) {
    alone[i] = resultOf(enqueue(several(1, 8, 11 + static_cast<uint64_t>(i)))).outputTokenIds.at(0);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(contextTokens(), 4 * kPrompt);
  for (const bool reuse : {false, true}) {
    options.block_reuse = reuse;
    start();
    EXPECT_EQ(answers(enqueue(several(4, 8)), 4), alone);
    const int32_t tail = kPrompt % options.scheduler.kv.tokens_per_block;
    EXPECT_EQ(contextTokens(), kPrompt + 3 * tail) << "reuse " << reuse;
    const auto again = enqueue(several(4, 8));
    EXPECT_EQ(answers(again, 4), alone);
    EXPECT_EQ(contextTokens(), reuse ? 4 * tail : kPrompt + 3 * tail);
  }
}

TEST_F(ExecutorSequencesTest, StreamsAndPausesKeepThemApart) {
  start();
  const auto alone = answers(enqueue(several(4, 20)), 4);
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 18;
  start();
  Request streaming = several(4, 20);
  streaming.setStreaming(true);
  EXPECT_EQ(answers(enqueue(streaming), 4), alone);
  core->shutdown();
  EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0);
}

TEST_F(ExecutorSequencesTest, OutputsAboutThePromptComeWithTheFirstSequence) {
  start();
  Request r = several(3, 2);
  executor::OutputConfig output;
  output.excludeInputFromOutput = output.returnContextLogits = output.returnGenerationLogits = true;
  r.setOutputConfig(output);
  for (const auto& response : finish(enqueue(r))) {
    const auto& result = response.getResult();
    EXPECT_EQ(result.contextLogits.has_value(), result.sequenceIndex == 0);
    EXPECT_TRUE(result.generationLogits.has_value());
  }
  EXPECT_EQ(contextTokens(), kPrompt + 2 * (kPrompt % 4));
}

TEST_F(ExecutorSequencesTest, CancellingEndsAll) {
  Gate gate;
  gate.close();
  before_step = [&](int, const StepInput&) { gate.pass(); };
  options.scheduler.max_batch_size = 2;
  start();
  const auto id = enqueue(several(4, 30));
  gate.awaitArrivals(1);
  core->cancel(id);
  gate.open();
  size_t cancelled = 0;
  for (const auto& response : finish(id)) {
    cancelled += response.getResult().finishReasons.at(0) == FinishReason::kCANCELLED;
  }
  EXPECT_EQ(cancelled, 4u);
  resultOf(enqueue(request({1}, 1)));
}

TEST_F(ExecutorSequencesTest, AnErrorEndsAllWithOneResponse) {
  after_row = [](const std::vector<int32_t>& history, std::span<float> logits) {
    if (history.size() == kPrompt + 3) logits[7] = std::nanf("");
  };
  start();
  const auto id = enqueue(several(4, 8));
  const auto all = finish(id);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].getErrorMsg(), HasSubstr("not finite"));
  resultOf(enqueue(request({1}, 1)));
  EXPECT_EQ(core->responses().numReady(std::nullopt), 0);
  core->shutdown();
  EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0);
}

TEST_F(ExecutorSequencesTest, TheQueueCountsEverySequenceAndLimitsThem) {
  options.max_queue_size = 3;
  start();
  EXPECT_THROW(enqueue(several(4, 2)), Error);
  EXPECT_EQ(answers(enqueue(several(3, 2)), 3).size(), 3u);
  EXPECT_EQ(errorOf(enqueue(several(1025, 2))), "numReturnSequences 1025 is larger than 1024");
  resultOf(enqueue(request({1}, 1)));
}

}  // namespace
}  // namespace chorus
