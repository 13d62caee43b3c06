// Statistics of the executor: of each step, of each request in a step, and of a request as a whole.
#pragma once

#include <array>
#include <map>
#include <string>

#include "chorus/tensor.h"
#include "chorus/types.h"

namespace chorus::executor {

// The KV block pool. Counts of allocated, reused and missed blocks are totals since the start.
struct KvCacheStats {
  SizeType32 maxNumBlocks = 0;
  SizeType32 freeNumBlocks = 0;  // includes cached blocks
  SizeType32 usedNumBlocks = 0;
  SizeType32 tokensPerBlock = 0;
  SizeType32 allocTotalBlocks = 0;  // taken by requests, reused and new
  SizeType32 allocNewBlocks = 0;
  SizeType32 reusedBlocks = 0;     // context blocks found in the cache
  SizeType32 missedBlocks = 0;     // context blocks not found, of requests that may reuse
  FloatType cacheHitRate = 0;      // reused / (reused + missed)
  SizeType32 cachedNumBlocks = 0;  // Chorus: free blocks whose content can be reused
  std::int64_t blockBytes = 0;     // Chorus: bytes of one block, over all layers and ranks
};

// Chorus: one level of the adapter cache. Counts are totals since the start.
struct AdapterCacheLevelStats {
  SizeType32 residentAdapters = 0;  // includes those that are loading
  SizeType32 pinnedAdapters = 0;    // of these, those that requests use or wait for
  std::int64_t residentBytes = 0;
  std::int64_t maxBytes = 0;
  std::int64_t hits = 0;       // claims of an adapter that was resident or loading
  std::int64_t misses = 0;     // claims of an adapter that was neither
  std::int64_t evictions = 0;  // adapters removed to make room
};

// Chorus: how long successful loads of adapters took, each from the request that needed the adapter to the end of its
// load, as a histogram. Totals since the start.
struct AdapterLoadTimes {
  // Upper bounds of the buckets in seconds; the last bucket has none.
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   30};
  std::array<std::int64_t, kBounds.size() + 1> counts{};  // loads of each bucket
  double seconds = 0;                                     // of all loads together
};

// Chorus: the loaded adapters (host) and, of these, those that steps can use at once (device). On the CPU the device
// level takes no memory of its own.
struct AdapterCacheStats {
  AdapterCacheLevelStats host, device;
  std::int64_t loads = 0;  // successful loads from a directory or from a request's tensors
  std::int64_t failedLoads = 0;
  AdapterLoadTimes loadTimes;  // of the successful loads
};

// Chorus: a registered adapter and where its packed weights are.
struct AdapterState {
  enum class Place { kDISK, kLOADING, kHOST, kDEVICE };  // kDISK: not loaded; kDEVICE: on the host level too
  IdType taskId = 0;
  Place place = Place::kDISK;
  SizeType32 users = 0;     // sequences that run with it or wait with its weights reserved for them
  std::int64_t bytes = 0;   // packed; at most this until it was loaded
  std::string contentHash;  // empty: not known yet
  bool pinned = false;      // Executor::loadAdapter
};

// A step under BatchingType::kSTATIC.
struct StaticBatchingStats {
  SizeType32 numScheduledRequests = 0;
  SizeType32 numContextRequests = 0;
  SizeType32 numCtxTokens = 0;
  SizeType32 numGenTokens = 0;   // one per request in generation
  SizeType32 emptyGenSlots = 0;  // slots of maxBatchSize without a request in generation
};

// A step under BatchingType::kINFLIGHT.
struct InflightBatchingStats {
  SizeType32 numScheduledRequests = 0;
  SizeType32 numContextRequests = 0;
  SizeType32 numGenRequests = 0;
  SizeType32 numPausedRequests = 0;  // paused in this step to make room for others
  SizeType32 numCtxTokens = 0;
  SizeType32 microBatchId = 0;
  FloatType avgNumDecodedTokensPerIter = 0;  // per request in generation
};

// Never set: this build does not draft tokens.
struct SpecDecodingStats {
  SizeType64 numDraftTokens = 0;
  SizeType64 numAcceptedTokens = 0;
  SizeType64 numRequestsWithDraftTokens = 0;
  double acceptanceLength = 0;
  double iterLatencyMS = 0;
  double draftOverhead = 0;
};

struct IterationStats {
  std::string timestamp;  // end of the step: month-day-year hours:minutes:seconds.microseconds, local time
  IterationType iter = 0;
  double iterLatencyMS = 0;
  double newActiveRequestsQueueLatencyMS = 0;  // sum over the requests whose first step this was
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
  std::size_t cpuMemUsage = 0;  // resident memory of the process in bytes
  std::size_t pinnedMemUsage = 0;
  std::optional<KvCacheStats> kvCacheStats;  // always set; state at the start of the step
  std::optional<KvCacheStats> crossKvCacheStats;
  std::optional<StaticBatchingStats> staticBatchingStats;
  std::optional<InflightBatchingStats> inflightBatchingStats;
  std::optional<SpecDecodingStats> specDecodingStats;
  // Chorus: the step's counts under either batching type.
  SizeType32 numContextRequests = 0;
  SizeType32 numGenRequests = 0;
  SizeType32 numCtxTokens = 0;
  SizeType32 numAdapters = 0;  // distinct adapters
};

enum class RequestStage {
  kQUEUED,
  kENCODER_IN_PROGRESS,
  kCONTEXT_IN_PROGRESS,
  kGENERATION_IN_PROGRESS,
  kGENERATION_COMPLETE,
};

// Never set: context and generation phases run in one executor.
struct DisServingRequestStats {
  double kvCacheTransferMS = 0;
  std::size_t kvCacheSize = 0;
};

struct RequestStats {
  IdType id = 0;
  RequestStage stage = RequestStage::kQUEUED;
  SizeType32 contextPrefillPosition = 0;  // tokens of the context that are computed
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
  std::vector<RequestStats> requestStats;  // running ones in the order they started, then ended ones, then waiting ones
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
    SizeType32 numTotalAllocatedBlocks = 0;  // new and reused blocks
    SizeType32 numNewAllocatedBlocks = 0;
    SizeType32 numReusedBlocks = 0;
    SizeType32 numMissedBlocks = 0;  // context blocks not found in the cache
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

// Statistics as one line of JSON.
class JsonSerialization {
 public:
  static std::string toJsonStr(const IterationStats& iterationStats);
  static std::string toJsonStr(const RequestStatsPerIteration& requestStatsPerIter);
  static std::string toJsonStr(const RequestStats& requestStats);
};

}  // namespace chorus::executor
