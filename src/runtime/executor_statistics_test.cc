// Statistics of the executor, per step and per request.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::RequestStage;
using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::fakeSource;
using testing::Gate;

class ExecutorStatisticsTest : public CoreFixture {
 protected:
  ExecutorStatisticsTest() {
    holdStep(0, gate);
    gate.close();
    options.request_stats_max = 100;
  }
  // Runs a request of 3 tokens that generates 3 more. During its first step two requests for 1 token arrive: one with
  // an adapter and one without.
  void run() {
    start();
    core->registerAdapter(4, fakeSource("red"));
    ids.push_back(enqueue(request({1, 2, 3}, 3)));
    gate.awaitArrivals(1);
    executor::Request adapted = request({4, 5}, 1);
    adapted.setLoraConfig(executor::LoraConfig(4));
    ids.push_back(enqueue(request({6}, 1)));
    ids.push_back(enqueue(adapted));
    gate.open();
    for (const auto id : ids) results.push_back(resultOf(id));
    core->shutdown();
    steps = core->takeStats();
    requests = core->takeRequestStats();
  }

  Gate gate;
  std::vector<executor::IdType> ids;
  std::vector<executor::Result> results;
  std::deque<executor::IterationStats> steps;
  std::deque<executor::RequestStatsPerIteration> requests;
};

TEST_F(ExecutorStatisticsTest, TheLiveBatchShowsTheStepThatRuns) {
  start();
  core->registerAdapter(4, fakeSource("red"));
  executor::Request adapted = request({4, 5, 6}, 2);
  adapted.setLoraConfig(executor::LoraConfig(4));
  const auto first = enqueue(adapted);
  gate.awaitArrivals(1);
  executor::LiveBatch batch = core->liveBatch();
  EXPECT_EQ(batch.maxBatchSize, 4);
  EXPECT_EQ(batch.numWaiting, 0);
  ASSERT_EQ(batch.running.size(), 1u);
  EXPECT_EQ(batch.running[0].requestId, first);
  EXPECT_TRUE(batch.running[0].inStep);
  EXPECT_FALSE(batch.running[0].generates);
  EXPECT_EQ(batch.running[0].promptTokens, 3);
  EXPECT_EQ(batch.running[0].generatedTokens, 0);
  EXPECT_THAT(batch.running[0].adapters, ElementsAre(4u));
  gate.open();
  resultOf(first);
  const auto second = enqueue(request({7, 8}, 3));
  resultOf(second);
  core->shutdown();
  batch = core->liveBatch();
  EXPECT_TRUE(batch.running.empty());
  const executor::StepTotals& totals = batch.totals;
  EXPECT_EQ(totals.steps, 5);
  EXPECT_EQ(totals.contextTokens, 3 + 2);
  EXPECT_EQ(totals.generatedTokens, 2 + 3);
  EXPECT_EQ(totals.contextSequences, 2);
  EXPECT_EQ(totals.generationSequences, 1 + 2);
  EXPECT_EQ(totals.adapters, 2);
  EXPECT_EQ(totals.preemptions, 0);
  EXPECT_GT(totals.networkSeconds, 0);
  ASSERT_EQ(batch.adapters.size(), 1u);
  EXPECT_EQ(batch.adapters[0].taskId, 4u);
  EXPECT_EQ(batch.adapters[0].users, 0);
  EXPECT_FALSE(batch.adapters[0].loading);
}

TEST_F(ExecutorStatisticsTest, StepStatisticsDescribeEachStep) {
  run();
  ASSERT_GE(steps.size(), 3u);
  int32_t begun = 0, completed = 0, adapters = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    EXPECT_EQ(step.iter, i);
    ASSERT_EQ(step.timestamp.size(), 26u);
    EXPECT_EQ(step.timestamp.substr(2, 1) + step.timestamp.substr(5, 1) + step.timestamp.substr(13, 1), "--:");
    EXPECT_EQ(step.timestamp.at(19), '.');
    EXPECT_GT(step.iterLatencyMS, 0);
    EXPECT_EQ(step.maxNumActiveRequests, 4);
    EXPECT_EQ(step.maxBatchSizeStatic, 4);
    EXPECT_EQ(step.maxBatchSizeRuntime, 4);
    EXPECT_EQ(step.maxNumTokensStatic, 24);
    EXPECT_EQ(step.maxNumTokensRuntime, 24);
    EXPECT_EQ(step.gpuMemUsage, 0u);
    EXPECT_GT(step.cpuMemUsage, size_t{1} << 20);
    EXPECT_FALSE(step.staticBatchingStats || step.specDecodingStats || step.crossKvCacheStats);
    const auto& inflight = step.inflightBatchingStats.value();
    EXPECT_EQ(inflight.numScheduledRequests, inflight.numContextRequests + inflight.numGenRequests);
    EXPECT_EQ(inflight.numContextRequests, step.numContextRequests);
    EXPECT_EQ(inflight.numCtxTokens, step.numCtxTokens);
    EXPECT_EQ(inflight.avgNumDecodedTokensPerIter, inflight.numGenRequests > 0 ? 1.0f : 0.0f);
    begun += step.numNewActiveRequests;
    completed += step.numCompletedRequests;
    adapters += step.numAdapters;
    EXPECT_EQ(step.newActiveRequestsQueueLatencyMS > 0, step.numNewActiveRequests > 0);
  }
  EXPECT_EQ(begun, 3);
  EXPECT_EQ(completed, 3);
  EXPECT_EQ(adapters, 1);
  EXPECT_EQ(steps[0].numNewActiveRequests, 1);
  EXPECT_EQ(steps[0].numCtxTokens, 3);
  EXPECT_EQ(steps[1].inflightBatchingStats.value().numGenRequests, 1);
}

TEST_F(ExecutorStatisticsTest, RequestStatisticsDescribeEachRequestOfAStep) {
  run();
  ASSERT_EQ(requests.size(), steps.size());
  const auto& first = requests[0].requestStats;
  EXPECT_EQ(requests[0].iter, 0u);
  ASSERT_GE(first.size(), 1u);
  EXPECT_EQ(first[0].id, ids[0]);
  EXPECT_EQ(first[0].stage, RequestStage::kGENERATION_IN_PROGRESS);
  EXPECT_EQ(first[0].contextPrefillPosition, 3);
  EXPECT_EQ(first[0].numGeneratedTokens, 1);
  EXPECT_EQ(first[0].avgNumDecodedTokensPerIter, 1.0f);
  EXPECT_TRUE(first[0].scheduled);
  EXPECT_FALSE(first[0].paused);
  EXPECT_EQ(first[0].allocTotalBlocksPerRequest, 1);
  EXPECT_EQ(first[0].allocNewBlocksPerRequest, 1);
  EXPECT_EQ(first[0].missedBlocksPerRequest, 1);
  EXPECT_FALSE(first[0].disServingStats);
  // Every request is reported as completed exactly once.
  std::map<executor::IdType, int> ends;
  for (const auto& step : requests) {
    for (const auto& stats : step.requestStats) {
      if (stats.stage == RequestStage::kGENERATION_COMPLETE) {
        ++ends[stats.id];
        EXPECT_EQ(stats.numGeneratedTokens, stats.id == ids[0] ? 3 : 1);
        EXPECT_TRUE(stats.scheduled);
      }
    }
  }
  EXPECT_THAT(ends, ElementsAre(std::pair(ids[0], 1), std::pair(ids[1], 1), std::pair(ids[2], 1)));
}

TEST_F(ExecutorStatisticsTest, WaitingRequestsHaveStatistics) {
  start();
  ids.push_back(enqueue(request({1, 2, 3}, 6)));
  gate.awaitArrivals(1);
  for (int32_t i = 0; i < 5; ++i) ids.push_back(enqueue(request({i}, 6)));
  gate.open();
  for (const auto id : ids) resultOf(id);
  core->shutdown();
  steps = core->takeStats();
  requests = core->takeRequestStats();
  EXPECT_EQ(steps.at(1).numActiveRequests, 4);
  EXPECT_EQ(steps.at(1).numQueuedRequests, 2);
  const auto& second = requests.at(1).requestStats;
  ASSERT_EQ(second.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(second[i].id, ids[i]);
    EXPECT_EQ(second[i].stage == RequestStage::kQUEUED, i >= 4) << i;
    EXPECT_EQ(second[i].scheduled, i < 4) << i;
  }
}

TEST_F(ExecutorStatisticsTest, PausedRequestsHaveStatistics) {
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 16;
  options.iter_stats_max = options.request_stats_max = 1000;
  start();
  for (int32_t i = 1; i <= 4; ++i) ids.push_back(enqueue(request({i, i}, 30)));
  gate.open();  // the first step waits for all of them
  for (const auto id : ids) resultOf(id);
  core->shutdown();
  steps = core->takeStats();
  requests = core->takeRequestStats();
  ASSERT_EQ(steps.size(), requests.size());
  int32_t all = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& of = requests[i].requestStats;
    const auto paused = std::count_if(of.begin(), of.end(), [](const auto& request) { return request.paused; });
    EXPECT_EQ(steps[i].inflightBatchingStats.value().numPausedRequests, paused) << i;
    all += static_cast<int32_t>(paused);
  }
  EXPECT_GT(all, 0) << "the setting had no effect on the run";
}

TEST_F(ExecutorStatisticsTest, StaticBatchesHaveStatistics) {
  options.static_batching = true;
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kSTATIC_BATCH;
  run();
  const auto& batch = steps[1].staticBatchingStats.value();
  EXPECT_FALSE(steps[1].inflightBatchingStats);
  EXPECT_EQ(batch.numScheduledRequests, 1);
  EXPECT_EQ(batch.numContextRequests, 0);
  EXPECT_EQ(batch.numGenTokens, 1);
  EXPECT_EQ(batch.emptyGenSlots, 3);
}

TEST_F(ExecutorStatisticsTest, OnlyTheLatestStatisticsAreKept) {
  options.iter_stats_max = 2;
  options.request_stats_max = 1;
  run();
  ASSERT_EQ(steps.size(), 2u);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(steps[1].iter, requests[0].iter);
  EXPECT_TRUE(core->takeStats().empty());
}

TEST_F(ExecutorStatisticsTest, NoStatisticsAreKeptUnlessAskedFor) {
  options.iter_stats_max = options.request_stats_max = 0;
  run();
  EXPECT_TRUE(steps.empty());
  EXPECT_TRUE(requests.empty());
}

TEST_F(ExecutorStatisticsTest, PerfMetricsKnowTheirSteps) {
  start();
  gate.open();
  executor::OutputConfig output;
  output.returnPerfMetrics = true;
  resultOf(enqueue(request({7}, 2)));
  const auto metrics =
      resultOf(enqueue(executor::Request({1, 2, 3}, 3, false, executor::SamplingConfig(), output))).requestPerfMetrics;
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->firstIter, 2u);
  EXPECT_EQ(metrics->lastIter, 4u);
  EXPECT_EQ(metrics->iter, 4u);
  const auto& timing = metrics->timingMetrics;
  EXPECT_LE(timing.arrivalTime, timing.firstScheduledTime);
  EXPECT_LT(timing.firstScheduledTime, timing.firstTokenTime);
  EXPECT_LT(timing.firstTokenTime, timing.lastTokenTime);
}

TEST_F(ExecutorStatisticsTest, AreWrittenAsJson) {
  run();
  const auto step = nlohmann::json::parse(executor::JsonSerialization::toJsonStr(steps[1]));
  EXPECT_EQ(step.at("iter"), 1);
  EXPECT_EQ(step.at("timestamp"), steps[1].timestamp);
  EXPECT_EQ(step.at("inflightBatchingStats").at("numGenRequests"), 1);
  EXPECT_EQ(step.at("kvCacheStats").at("maxNumBlocks"), 32);
  EXPECT_TRUE(step.at("specDecodingStats").is_null());
  const auto all = nlohmann::json::parse(executor::JsonSerialization::toJsonStr(requests[0]));
  EXPECT_EQ(all.at("iter"), 0);
  EXPECT_EQ(all.at("requestStats").at(0).at("stage"), "GENERATION_IN_PROGRESS");
  const auto one = nlohmann::json::parse(executor::JsonSerialization::toJsonStr(requests[0].requestStats.at(0)));
  EXPECT_EQ(one, all.at("requestStats").at(0));
}

}  // namespace
}  // namespace chorus
