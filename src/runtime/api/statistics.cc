#include "chorus/statistics.h"

#include <nlohmann/json.hpp>

namespace chorus::executor {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json json(const T& value) {
  return value;
}

Json json(RequestStage stage) {
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

#define CHORUS_JSON_FIELD(name) object[#name] = json(s.name);
// Defines json(Type): an object of the fields, in this order.
#define CHORUS_JSON_OF(Type, ...)                                             \
  Json json(const Type& s) {                                                  \
    Json object;                                                              \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(CHORUS_JSON_FIELD, __VA_ARGS__)) \
    return object;                                                            \
  }

CHORUS_JSON_OF(KvCacheStats, maxNumBlocks, freeNumBlocks, usedNumBlocks, tokensPerBlock, allocTotalBlocks,
               allocNewBlocks, reusedBlocks, missedBlocks, cacheHitRate, cachedNumBlocks, blockBytes)
CHORUS_JSON_OF(StaticBatchingStats, numScheduledRequests, numContextRequests, numCtxTokens, numGenTokens, emptyGenSlots)
CHORUS_JSON_OF(InflightBatchingStats, numScheduledRequests, numContextRequests, numGenRequests, numPausedRequests,
               numCtxTokens, microBatchId, avgNumDecodedTokensPerIter)
CHORUS_JSON_OF(SpecDecodingStats, numDraftTokens, numAcceptedTokens, numRequestsWithDraftTokens, acceptanceLength,
               iterLatencyMS, draftOverhead)
CHORUS_JSON_OF(DisServingRequestStats, kvCacheTransferMS, kvCacheSize)

template <typename T>
Json json(const std::optional<T>& s) {
  return s ? json(*s) : Json(nullptr);
}

CHORUS_JSON_OF(IterationStats, timestamp, iter, iterLatencyMS, newActiveRequestsQueueLatencyMS, numNewActiveRequests,
               numActiveRequests, numQueuedRequests, numCompletedRequests, maxNumActiveRequests, maxBatchSizeStatic,
               maxBatchSizeTunerRecommended, maxBatchSizeRuntime, maxNumTokensStatic, maxNumTokensTunerRecommended,
               maxNumTokensRuntime, gpuMemUsage, cpuMemUsage, pinnedMemUsage, kvCacheStats, crossKvCacheStats,
               staticBatchingStats, inflightBatchingStats, specDecodingStats, numAdapters)
CHORUS_JSON_OF(RequestStats, id, stage, contextPrefillPosition, numGeneratedTokens, avgNumDecodedTokensPerIter,
               scheduled, paused, disServingStats, allocTotalBlocksPerRequest, allocNewBlocksPerRequest,
               reusedBlocksPerRequest, missedBlocksPerRequest, kvCacheHitRatePerRequest)

#undef CHORUS_JSON_OF
#undef CHORUS_JSON_FIELD

}  // namespace

std::string JsonSerialization::toJsonStr(const IterationStats& iterationStats) { return json(iterationStats).dump(); }

std::string JsonSerialization::toJsonStr(const RequestStatsPerIteration& requestStatsPerIter) {
  Json requests = Json::array();
  for (const RequestStats& stats : requestStatsPerIter.requestStats) requests.push_back(json(stats));
  return Json{{"iter", requestStatsPerIter.iter}, {"requestStats", requests}}.dump();
}

std::string JsonSerialization::toJsonStr(const RequestStats& requestStats) { return json(requestStats).dump(); }

}  // namespace chorus::executor
