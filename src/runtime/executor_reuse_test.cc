// Reuse of KV blocks between requests, through the executor's loop: which tokens are computed and which blocks shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::LoraConfig;
using executor::Request;
using executor::VecTokens;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeSource;
using testing::Gate;

class ExecutorReuseTest : public CoreFixture {
 protected:
  static VecTokens prompt(int32_t length, int32_t first = 1) {
    VecTokens tokens(static_cast<size_t>(length));
    for (int32_t i = 0; i < length; ++i) tokens[static_cast<size_t>(i)] = (first + i * i) % kVocab;
    return tokens;
  }
  // Runs a request, checks its answer and returns how many context tokens were computed.
  int32_t computed(const Request& r, const std::string& adapter = "") {
    core->takeStats();
    const auto result = resultOf(enqueue(r));
    EXPECT_EQ(result.outputTokenIds.at(0), expectedTokens(r.getInputTokenIds(), r.getMaxTokens(), kVocab, adapter));
    last_ = result;
    int32_t tokens = 0;
    for (const auto& step : core->takeStats()) tokens += step.numCtxTokens;
    return tokens;
  }
  Request withAdapter(const VecTokens& tokens, uint64_t task) {
    Request r = request(tokens, 2);
    r.setLoraConfig(LoraConfig(task));
    return r;
  }

  executor::Result last_;
};

TEST_F(ExecutorReuseTest, AnEqualPromptComputesItsTailAlone) {
  start();
  EXPECT_EQ(computed(request(prompt(18), 3)), 18);
  EXPECT_EQ(last_.cachedTokens, 0);
  EXPECT_EQ(computed(request(prompt(18), 3)), 2);
  EXPECT_EQ(last_.cachedTokens, 16);
  EXPECT_EQ(computed(request(prompt(16), 3)), 4) << "the last token is computed, and with it its block";
  Request measured = request(prompt(10), 3);
  executor::OutputConfig output;
  output.excludeInputFromOutput = output.returnPerfMetrics = true;
  measured.setOutputConfig(output);
  EXPECT_EQ(computed(measured), 2);
  const auto& kv = last_.requestPerfMetrics.value().kvCacheMetrics;
  EXPECT_EQ(kv.numReusedBlocks, 2);
  EXPECT_EQ(kv.numMissedBlocks, 1);
  EXPECT_EQ(kv.numNewAllocatedBlocks, 1);
  EXPECT_EQ(kv.numTotalAllocatedBlocks, 3);
  EXPECT_FLOAT_EQ(kv.kvCacheHitRate, 2.0f / 3.0f);
  const auto pool = core->kvCacheStats();
  EXPECT_EQ(pool.reusedBlocks, 4 + 3 + 2);
  EXPECT_FLOAT_EQ(pool.cacheHitRate,
                  static_cast<float>(pool.reusedBlocks) / static_cast<float>(pool.reusedBlocks + pool.missedBlocks));
}

TEST_F(ExecutorReuseTest, ASecondTurnReusesTheAnswerOfTheFirst) {
  start();
  VecTokens turn = prompt(6);
  EXPECT_EQ(computed(request(turn, 11)), 6);
  // 16 of the 17 tokens have keys and values: four blocks.
  const auto answer = last_.outputTokenIds.at(0);
  turn.insert(turn.end(), answer.begin(), answer.end());
  turn.push_back(7);
  EXPECT_EQ(computed(request(turn, 2)), 2);
}

TEST_F(ExecutorReuseTest, PromptsThatComeTogetherAreComputedOnce) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  const auto other = enqueue(request({5}, 1));
  gate.awaitArrivals(1);
  std::vector<executor::IdType> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(enqueue(request(prompt(22), 8)));
  gate.open();
  resultOf(other);
  for (const auto id : ids) EXPECT_EQ(resultOf(id).outputTokenIds.at(0), expectedTokens(prompt(22), 8, kVocab));
  core->shutdown();
  int32_t tokens = 0, most_blocks = 0;
  for (const auto& step : core->takeStats()) {
    tokens += step.numCtxTokens;
    most_blocks = std::max(most_blocks, step.kvCacheStats.value().usedNumBlocks);
  }
  EXPECT_EQ(tokens, 1 + 22 + 3 * 2);
  EXPECT_LE(most_blocks, 5 + 4 * 2) << "more than the prompt's complete blocks and two for each";
}

TEST_F(ExecutorReuseTest, ARequestForContextLogitsComputesItsWholePrompt) {
  start();
  computed(request(prompt(18), 3));
  Request all = request(prompt(18), 3);
  executor::OutputConfig output;
  output.excludeInputFromOutput = output.returnContextLogits = true;
  all.setOutputConfig(output);
  EXPECT_EQ(computed(all), 18);
  ASSERT_TRUE(last_.contextLogits.has_value());
  const auto* logits = static_cast<const float*>(last_.contextLogits->getData());
  std::vector<float> expected(kVocab);
  const VecTokens tokens = prompt(18);
  for (size_t row = 0; row < tokens.size(); ++row) {
    testing::fakeLogits({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(row) + 1}, 7, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), logits + row * kVocab)) << "row " << row;
  }
  EXPECT_EQ(computed(request(prompt(18), 3)), 2);
}

TEST_F(ExecutorReuseTest, AdaptersShareNothingButEqualContentDoes) {
  start();
  core->registerAdapter(1, fakeSource("red"));
  core->registerAdapter(2, fakeSource("blue"));
  core->registerAdapter(3, fakeSource("red"));
  const VecTokens tokens = prompt(18);
  EXPECT_EQ(computed(request(tokens, 2)), 18);
  EXPECT_EQ(computed(withAdapter(tokens, 1), "red"), 18);
  EXPECT_EQ(computed(withAdapter(tokens, 2), "blue"), 18);
  EXPECT_EQ(computed(withAdapter(tokens, 1), "red"), 2);
  EXPECT_EQ(computed(withAdapter(tokens, 3), "red"), 2);
  EXPECT_EQ(computed(request(tokens, 2)), 2);
  core->registerAdapter(1, fakeSource("green"));
  EXPECT_EQ(computed(withAdapter(tokens, 1), "green"), 18) << "the old content's blocks are not the new one's";
  core->registerAdapter(1, fakeSource("red"));
  EXPECT_EQ(computed(withAdapter(tokens, 1), "red"), 2);
}

TEST_F(ExecutorReuseTest, ReuseDependsOnTheLoadedContentAndNotOnTheRegisteredOne) {
  // The directory changes between registration and load.
  std::string content = "first";
  load = [&](const AdapterSource&) { return testing::fakeParts(content); };
  start();
  core->registerAdapter(1, fakeSource("directory"));
  EXPECT_EQ(computed(withAdapter(prompt(18), 1), "first"), 18);
  content = "second";
  core->registerAdapter(1, fakeSource("directory"));
  EXPECT_EQ(computed(withAdapter(prompt(18), 1), "second"), 18);
}

TEST_F(ExecutorReuseTest, WithoutBlockReuseNoBlocksAreReused) {
  options.block_reuse = false;
  start();
  EXPECT_EQ(computed(request(prompt(18), 3)), 18);
  EXPECT_EQ(computed(request(prompt(18), 3)), 18);
  const auto pool = core->kvCacheStats();
  EXPECT_EQ(pool.cachedNumBlocks, 0);
  EXPECT_EQ(pool.reusedBlocks + pool.missedBlocks, 0);
}

TEST_F(ExecutorReuseTest, APausedRequestFindsItsBlocksAgain) {
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 16;
  Gate gate;
  holdStep(0, gate);
  for (const bool reuse : {false, true}) {
    options.block_reuse = reuse;
    gate.close();
    start();
    const auto first = enqueue(request(prompt(20), 20)), second = enqueue(request(prompt(20, 2), 20));
    gate.open();
    EXPECT_EQ(resultOf(first).outputTokenIds.at(0), expectedTokens(prompt(20), 20, kVocab));
    EXPECT_EQ(resultOf(second).outputTokenIds.at(0), expectedTokens(prompt(20, 2), 20, kVocab));
    core->shutdown();
    int32_t tokens = 0;
    for (const auto& step : core->takeStats()) tokens += step.numCtxTokens;
    if (reuse) {
      EXPECT_LT(tokens, 40 + 20) << "it computed everything again";
    } else {
      EXPECT_GT(tokens, 40 + 20) << "nobody was paused";
    }
  }
}

TEST_F(ExecutorReuseTest, FailedAndCancelledRequestsLeakNoBlocks) {
  Gate gate;
  before_step = [&](int step, const StepInput&) {
    if (step == 4) gate.pass();
    if (step == 5) throw std::runtime_error("the network broke");
  };
  start();
  computed(request(prompt(18), 2));
  gate.close();
  const auto broken = enqueue(request(prompt(18), 9)), cancelled = enqueue(request(prompt(18), 9));
  gate.awaitArrivals(1);
  core->cancel(cancelled);
  gate.open();
  EXPECT_NE(errorOf(broken), "");
  finish(cancelled);
  EXPECT_EQ(computed(request(prompt(18), 2)), 2);
  core->shutdown();
  const auto pool = core->kvCacheStats();
  EXPECT_EQ(pool.usedNumBlocks, 0);
  EXPECT_EQ(pool.freeNumBlocks, pool.maxNumBlocks);
  EXPECT_GT(pool.cachedNumBlocks, 0);
}

}  // namespace
}  // namespace chorus
