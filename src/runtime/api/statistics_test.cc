// Statistics as JSON: every field has TensorRT-LLM's name and its own value.
#include "chorus/statistics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace chorus::executor {
namespace {

TEST(JsonSerialization, StepStatisticsNameEveryField) {
  IterationStats s{"now", 1,  2.5, 3.5, 4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                   14,    15, 16,  17,  {}, {}, {}, {}, {}, 18, 19, 20, 21};
  const std::string head =
      R"({"timestamp":"now","iter":1,"iterLatencyMS":2.5,"newActiveRequestsQueueLatencyMS":3.5,)"
      R"("numNewActiveRequests":4,"numActiveRequests":5,"numQueuedRequests":6,"numCompletedRequests":7,)"
      R"("maxNumActiveRequests":8,"maxBatchSizeStatic":9,"maxBatchSizeTunerRecommended":10,"maxBatchSizeRuntime":11,)"
      R"("maxNumTokensStatic":12,"maxNumTokensTunerRecommended":13,"maxNumTokensRuntime":14,)"
      R"("gpuMemUsage":15,"cpuMemUsage":16,"pinnedMemUsage":17,)";
  EXPECT_EQ(JsonSerialization::toJsonStr(s),
            head + R"("kvCacheStats":null,"crossKvCacheStats":null,"staticBatchingStats":null,)"
                   R"("inflightBatchingStats":null,"specDecodingStats":null,"numAdapters":21})");
  s.kvCacheStats = {1, 2, 3, 4, 5, 6, 7, 8, 0.5f, 10, 11};
  s.crossKvCacheStats = {12, 13, 14, 15, 16, 17, 18, 19, 0.25f, 21, 22};
  s.staticBatchingStats = {1, 2, 3, 4, 5};
  s.inflightBatchingStats = {1, 2, 3, 4, 5, 6, 0.75f};
  s.specDecodingStats = {1, 2, 3, 4.5, 5.5, 6.5};
  EXPECT_EQ(JsonSerialization::toJsonStr(s),
            head +
                R"("kvCacheStats":{"maxNumBlocks":1,"freeNumBlocks":2,"usedNumBlocks":3,"tokensPerBlock":4,)"
                R"("allocTotalBlocks":5,"allocNewBlocks":6,"reusedBlocks":7,"missedBlocks":8,"cacheHitRate":0.5,)"
                R"("cachedNumBlocks":10,"blockBytes":11},)"
                R"("crossKvCacheStats":{"maxNumBlocks":12,"freeNumBlocks":13,"usedNumBlocks":14,"tokensPerBlock":15,)"
                R"("allocTotalBlocks":16,"allocNewBlocks":17,"reusedBlocks":18,"missedBlocks":19,"cacheHitRate":0.25,)"
                R"("cachedNumBlocks":21,"blockBytes":22},)"
                R"("staticBatchingStats":{"numScheduledRequests":1,"numContextRequests":2,"numCtxTokens":3,)"
                R"("numGenTokens":4,"emptyGenSlots":5},)"
                R"("inflightBatchingStats":{"numScheduledRequests":1,"numContextRequests":2,"numGenRequests":3,)"
                R"("numPausedRequests":4,"numCtxTokens":5,"microBatchId":6,"avgNumDecodedTokensPerIter":0.75},)"
                R"("specDecodingStats":{"numDraftTokens":1,"numAcceptedTokens":2,"numRequestsWithDraftTokens":3,)"
                R"("acceptanceLength":4.5,"iterLatencyMS":5.5,"draftOverhead":6.5},"numAdapters":21})");
}

TEST(JsonSerialization, RequestStatisticsNameEveryFieldAndStage) {
  RequestStats s{1, RequestStage::kQUEUED, 2, 3, 0.5f, true, false, {}, 4, 5, 6, 7, 0.25f};
  const std::string tail = R"("allocTotalBlocksPerRequest":4,"allocNewBlocksPerRequest":5,"reusedBlocksPerRequest":6,)"
                           R"("missedBlocksPerRequest":7,"kvCacheHitRatePerRequest":0.25})";
  const std::string middle = R"("contextPrefillPosition":2,"numGeneratedTokens":3,"avgNumDecodedTokensPerIter":0.5,)"
                             R"("scheduled":true,"paused":false,"disServingStats":)";
  const std::pair<RequestStage, const char*> stages[] = {
      {RequestStage::kQUEUED, "QUEUED"},
      {RequestStage::kENCODER_IN_PROGRESS, "ENCODER_IN_PROGRESS"},
      {RequestStage::kCONTEXT_IN_PROGRESS, "CONTEXT_IN_PROGRESS"},
      {RequestStage::kGENERATION_IN_PROGRESS, "GENERATION_IN_PROGRESS"},
      {RequestStage::kGENERATION_COMPLETE, "GENERATION_COMPLETE"}};
  for (const auto& [stage, name] : stages) {
    s.stage = stage;
    EXPECT_EQ(JsonSerialization::toJsonStr(s), fmt::format(R"({{"id":1,"stage":"{}",{}null,{})", name, middle, tail));
  }
  s.disServingStats = {1.5, 2};
  const std::string one = JsonSerialization::toJsonStr(s);
  EXPECT_EQ(one, R"({"id":1,"stage":"GENERATION_COMPLETE",)" + middle +
                     R"({"kvCacheTransferMS":1.5,"kvCacheSize":2},)" + tail);
  EXPECT_EQ(JsonSerialization::toJsonStr(RequestStatsPerIteration{9, {s, s}}),
            R"({"iter":9,"requestStats":[)" + one + "," + one + "]}");
  EXPECT_EQ(JsonSerialization::toJsonStr(RequestStatsPerIteration{9, {}}), R"({"iter":9,"requestStats":[]})");
}

}  // namespace
}  // namespace chorus::executor
