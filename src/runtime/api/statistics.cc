#include "chorus/statistics.h"

#include <nlohmann/json.hpp>

namespace chorus::executor {
namespace {

using Json = nlohmann::ordered_json;

Json json(const KvCacheStats& s) {
  return {{"maxNumBlocks", s.maxNumBlocks},
          {"freeNumBlocks", s.freeNumBlocks},
          {"usedNumBlocks", s.usedNumBlocks},
          {"tokensPerBlock", s.tokensPerBlock},
          {"allocTotalBlocks", s.allocTotalBlocks},
          {"allocNewBlocks", s.allocNewBlocks},
          {"reusedBlocks", s.reusedBlocks},
          {"missedBlocks", s.missedBlocks},
          {"cacheHitRate", s.cacheHitRate},
          {"cachedNumBlocks", s.cachedNumBlocks},
          {"blockBytes", s.blockBytes}};
}

Json json(const StaticBatchingStats& s) {
  return {{"numScheduledRequests", s.numScheduledRequests},
          {"numContextRequests", s.numContextRequests},
          {"numCtxTokens", s.numCtxTokens},
          {"numGenTokens", s.numGenTokens},
          {"emptyGenSlots", s.emptyGenSlots}};
}

Json json(const InflightBatchingStats& s) {
  return {{"numScheduledRequests", s.numScheduledRequests},
          {"numContextRequests", s.numContextRequests},
          {"numGenRequests", s.numGenRequests},
          {"numPausedRequests", s.numPausedRequests},
          {"numCtxTokens", s.numCtxTokens},
          {"microBatchId", s.microBatchId},
          {"avgNumDecodedTokensPerIter", s.avgNumDecodedTokensPerIter}};
}

Json json(const SpecDecodingStats& s) {
  return {{"numDraftTokens", s.numDraftTokens},
          {"numAcceptedTokens", s.numAcceptedTokens},
          {"numRequestsWithDraftTokens", s.numRequestsWithDraftTokens},
          {"acceptanceLength", s.acceptanceLength},
          {"iterLatencyMS", s.iterLatencyMS},
          {"draftOverhead", s.draftOverhead}};
}

Json json(const DisServingRequestStats& s) {
  return {{"kvCacheTransferMS", s.kvCacheTransferMS}, {"kvCacheSize", s.kvCacheSize}};
}

template <typename T>
Json json(const std::optional<T>& s) {
  return s ? json(*s) : Json(nullptr);
}

Json json(const IterationStats& s) {
  return {{"timestamp", s.timestamp},
          {"iter", s.iter},
          {"iterLatencyMS", s.iterLatencyMS},
          {"newActiveRequestsQueueLatencyMS", s.newActiveRequestsQueueLatencyMS},
          {"numNewActiveRequests", s.numNewActiveRequests},
          {"numActiveRequests", s.numActiveRequests},
          {"numQueuedRequests", s.numQueuedRequests},
          {"numCompletedRequests", s.numCompletedRequests},
          {"maxNumActiveRequests", s.maxNumActiveRequests},
          {"maxBatchSizeStatic", s.maxBatchSizeStatic},
          {"maxBatchSizeTunerRecommended", s.maxBatchSizeTunerRecommended},
          {"maxBatchSizeRuntime", s.maxBatchSizeRuntime},
          {"maxNumTokensStatic", s.maxNumTokensStatic},
          {"maxNumTokensTunerRecommended", s.maxNumTokensTunerRecommended},
          {"maxNumTokensRuntime", s.maxNumTokensRuntime},
          {"gpuMemUsage", s.gpuMemUsage},
          {"cpuMemUsage", s.cpuMemUsage},
          {"pinnedMemUsage", s.pinnedMemUsage},
          {"kvCacheStats", json(s.kvCacheStats)},
          {"crossKvCacheStats", json(s.crossKvCacheStats)},
          {"staticBatchingStats", json(s.staticBatchingStats)},
          {"inflightBatchingStats", json(s.inflightBatchingStats)},
          {"specDecodingStats", json(s.specDecodingStats)},
          {"numAdapters", s.numAdapters}};
}

const char* nameOf(RequestStage stage) {
  switch (stage) {
    case RequestStage::kQUEUED:
      return "QUEUED";
    case RequestStage::kENCODER_IN_PROGRESS:
      return "ENCODER_IN_PROGRESS";
    case RequestStage::kCONTEXT_IN_PROGRESS:
      return "CONTEXT_IN_PROGRESS";
    case RequestStage::kGENERATION_IN_PROGRESS:
      return "GENERATION_IN_PROGRESS";
    case RequestStage::kGENERATION_COMPLETE:
      break;
  }
  return "GENERATION_COMPLETE";
}

Json json(const RequestStats& s) {
  return {{"id", s.id},
          {"stage", nameOf(s.stage)},
          {"contextPrefillPosition", s.contextPrefillPosition},
          {"numGeneratedTokens", s.numGeneratedTokens},
          {"avgNumDecodedTokensPerIter", s.avgNumDecodedTokensPerIter},
          {"scheduled", s.scheduled},
          {"paused", s.paused},
          {"disServingStats", json(s.disServingStats)},
          {"allocTotalBlocksPerRequest", s.allocTotalBlocksPerRequest},
          {"allocNewBlocksPerRequest", s.allocNewBlocksPerRequest},
          {"reusedBlocksPerRequest", s.reusedBlocksPerRequest},
          {"missedBlocksPerRequest", s.missedBlocksPerRequest},
          {"kvCacheHitRatePerRequest", s.kvCacheHitRatePerRequest}};
}

}  // namespace

std::string JsonSerialization::toJsonStr(const IterationStats& iterationStats) { return json(iterationStats).dump(); }

std::string JsonSerialization::toJsonStr(const RequestStatsPerIteration& requestStatsPerIter) {
  Json requests = Json::array();
  for (const RequestStats& stats : requestStatsPerIter.requestStats) requests.push_back(json(stats));
  return Json{{"iter", requestStatsPerIter.iter}, {"requestStats", requests}}.dump();
}

std::string JsonSerialization::toJsonStr(const RequestStats& requestStats) { return json(requestStats).dump(); }

}  // namespace chorus::executor
