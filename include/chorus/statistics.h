// What the executor counts: of each step, of each request in it, and of a request as a whole.
#pragma once

#include <map>

#include "chorus/tensor.h"
#include "chorus/types.h"

namespace chorus::executor {

// The pool of KV blocks. The counts of allocations, of reused and of missed blocks are since the start.
struct KvCacheStats {
  SizeType32 maxNumBlocks = 0;
  SizeType32 freeNumBlocks = 0;  // cached ones among them
  SizeType32 usedNumBlocks = 0;
  SizeType32 tokensPerBlock = 0;
  SizeType32 allocTotalBlocks = 0;  // taken by requests, reused or new
  SizeType32 allocNewBlocks = 0;
  SizeType32 reusedBlocks = 0;     // of contexts, found in the cache
  SizeType32 missedBlocks = 0;     // of contexts that may reuse, not found
  FloatType cacheHitRate = 0;      // reused / (reused + missed)
  SizeType32 cachedNumBlocks = 0;  // Chorus: free ones that hold content to reuse
  std::int64_t blockBytes = 0;     // Chorus: of one block, over all layers and ranks
};

// Chorus: one level of the adapter cache. Counts are since the start.
struct AdapterCacheLevelStats {
  SizeType32 residentAdapters = 0;  // those that load among them
  SizeType32 pinnedAdapters = 0;    // of these, those that requests use or wait for
  std::int64_t residentBytes = 0;
  std::int64_t maxBytes = 0;
  std::int64_t hits = 0;       // an adapter that a request needs was there, or loading for another
  std::int64_t misses = 0;     // it was not
  std::int64_t evictions = 0;  // adapters that left for want of room
};

// Chorus: the adapters that are loaded (host) and those of them that steps can use at once (device), which on the CPU
// take no memory of their own.
struct AdapterCacheStats {
  AdapterCacheLevelStats host, device;
  std::int64_t loads = 0;  // from a directory or a request's tensors, that ended well
  std::int64_t failedLoads = 0;
};

// Of a step under BatchingType::kSTATIC.
struct StaticBatchingStats {
  SizeType32 numScheduledRequests = 0;
  SizeType32 numContextRequests = 0;
  SizeType32 numCtxTokens = 0;
  SizeType32 numGenTokens = 0;   // one a request in generation
  SizeType32 emptyGenSlots = 0;  // of maxBatchSize, without a request in generation
};

// Of a step under BatchingType::kINFLIGHT.
struct InflightBatchingStats {
  SizeType32 numScheduledRequests = 0;
  SizeType32 numContextRequests = 0;
  SizeType32 numGenRequests = 0;
  SizeType32 numPausedRequests = 0;  // in this step, for want of blocks
  SizeType32 numCtxTokens = 0;
  SizeType32 microBatchId = 0;
  FloatType avgNumDecodedTokensPerIter = 0;  // a request in generation
};

// Never set: nothing is drafted.
struct SpecDecodingStats {
  SizeType64 numDraftTokens = 0;
  SizeType64 numAcceptedTokens = 0;
  SizeType64 numRequestsWithDraftTokens = 0;
  double acceptanceLength = 0;
  double iterLatencyMS = 0;
  double draftOverhead = 0;
};

struct IterationStats {
  std::string timestamp;  // when it ended: month-day-year hours:minutes:seconds.microseconds, local time
  IterationType iter = 0;
  double iterLatencyMS = 0;
  double newActiveRequestsQueueLatencyMS = 0;  // together, of requests that began in it
  SizeType32 numNewActiveRequests = 0;
  SizeType32 numActiveRequests = 0;
  SizeType32 numQueuedRequests = 0;
  SizeType32 numCompletedRequests = 0;
  SizeType32 maxNumActiveRequests = 0;
  SizeType32 maxBatchSizeStatic = 0;
  SizeType32 maxBatchSizeTunerRecommended = 0;  // 0: nothing is tuned
  SizeType32 maxBatchSizeRuntime = 0;
  SizeType32 maxNumTokensStatic = 0;
  SizeType32 maxNumTokensTunerRecommended = 0;
  SizeType32 maxNumTokensRuntime = 0;
  std::size_t gpuMemUsage = 0;
  std::size_t cpuMemUsage = 0;  // bytes of the process that are in memory
  std::size_t pinnedMemUsage = 0;
  std::optional<KvCacheStats> kvCacheStats;  // always set; at the start of the step
  std::optional<KvCacheStats> crossKvCacheStats;
  std::optional<StaticBatchingStats> staticBatchingStats;
  std::optional<InflightBatchingStats> inflightBatchingStats;
  std::optional<SpecDecodingStats> specDecodingStats;
  // Chorus: the step, whatever its batching.
  SizeType32 numContextRequests = 0;
  SizeType32 numGenRequests = 0;
  SizeType32 numCtxTokens = 0;
  SizeType32 numAdapters = 0;  // distinct ones
};

enum class RequestStage {
  kQUEUED,
  kENCODER_IN_PROGRESS,
  kCONTEXT_IN_PROGRESS,
  kGENERATION_IN_PROGRESS,
  kGENERATION_COMPLETE,
};

// Never set: contexts and generations run in one place.
struct DisServingRequestStats {
  double kvCacheTransferMS = 0;
  std::size_t kvCacheSize = 0;
};

struct RequestStats {
  IdType id = 0;
  RequestStage stage = RequestStage::kQUEUED;
  SizeType32 contextPrefillPosition = 0;  // tokens of its context that are computed
  SizeType32 numGeneratedTokens = 0;
  FloatType avgNumDecodedTokensPerIter = 0;
  bool scheduled = false;  // in this step
  bool paused = false;     // in this step
  std::optional<DisServingRequestStats> disServingStats;
  SizeType32 allocTotalBlocksPerRequest = 0;
  SizeType32 allocNewBlocksPerRequest = 0;
  SizeType32 reusedBlocksPerRequest = 0;
  SizeType32 missedBlocksPerRequest = 0;
  FloatType kvCacheHitRatePerRequest = 0;
};

struct RequestStatsPerIteration {
  IterationType iter = 0;
  std::vector<RequestStats> requestStats;  // running ones in the order they started, ended ones, then waiting ones
};

struct RequestPerfMetrics {
  using TimePoint = std::chrono::time_point<std::chrono::steady_clock>;
  struct TimingMetrics {
    TimePoint arrivalTime;
    TimePoint firstScheduledTime;
    TimePoint firstTokenTime;
    TimePoint lastTokenTime;
    TimePoint kvCacheTransferStart;
    TimePoint kvCacheTransferEnd;
    std::size_t kvCacheSize = 0;
  };
  struct KvCacheMetrics {
    SizeType32 numTotalAllocatedBlocks = 0;  // new and reused
    SizeType32 numNewAllocatedBlocks = 0;
    SizeType32 numReusedBlocks = 0;
    SizeType32 numMissedBlocks = 0;  // of its context, not found in the cache
    FloatType kvCacheHitRate = 0;    // reused / (reused + missed)
  };
  struct SpeculativeDecodingMetrics {
    FloatType acceptanceRate = 0;
    SizeType32 totalAcceptedDraftTokens = 0;
    SizeType32 totalDraftTokens = 0;
  };
  TimingMetrics timingMetrics;
  KvCacheMetrics kvCacheMetrics;
  SpeculativeDecodingMetrics speculativeDecoding;
  std::optional<IterationType> firstIter;  // its first step
  std::optional<IterationType> lastIter;   // the step of its last token
  std::optional<IterationType> iter;       // the step of this response
};

struct DebugTensorsPerIteration {
  IterationType iter = 0;
  std::map<std::string, Tensor> debugTensors;
};

// Statistics as JSON, on one line.
class JsonSerialization {
 public:
  static std::string toJsonStr(const IterationStats& iterationStats);
  static std::string toJsonStr(const RequestStatsPerIteration& requestStatsPerIter);
  static std::string toJsonStr(const RequestStats& requestStats);
};

}  // namespace chorus::executor
