// The Executor: one engine, many requests in flight. Names, defaults, checks and error texts are TensorRT-LLM's
// (executor.h of 0.19) where they apply to one machine; additions are marked "Chorus:".
#pragma once

#include <filesystem>
#include <string>

#include "chorus/request.h"
#include "chorus/response.h"
#include "chorus/types.h"

namespace chorus::executor {

struct SchedulerConfig {
  CapacitySchedulerPolicy capacitySchedulerPolicy = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT;
  std::optional<ContextChunkingPolicy> contextChunkingPolicy;
};

struct KvCacheConfig {
  // Complete blocks are kept after their request while nobody needs the room, and requests that begin with the same
  // tokens, under the same adapter content, start behind them. Answers do not change, to the bit.
  bool enableBlockReuse = true;
  std::optional<SizeType32> maxTokens;             // capacity in tokens; unset: by freeGpuMemoryFraction
  std::optional<FloatType> freeGpuMemoryFraction;  // of the memory left after the engine; unset: half (CPU)
};

struct PeftCacheConfig {
  SizeType32 numHostModuleLayer = 0;
  SizeType32 numDeviceModuleLayer = 0;
  SizeType32 optimalAdapterSize = 8;
  SizeType32 maxAdapterSize = 64;
  SizeType32 numPutWorkers = 1;
  SizeType32 numEnsureWorkers = 1;
  std::optional<FloatType> deviceCachePercent;
  std::optional<std::size_t> hostCacheSize;  // bytes; unset: 1 GiB, at most a quarter of what is free
  // Chorus: capacities in adapters of maxAdapterSize on every module, as NIM gives them; they win over the others. Of
  // smaller adapters more fit. Unset: by the above.
  std::optional<SizeType32> maxHostAdapters;
  std::optional<SizeType32> maxDeviceAdapters;
};

struct ExecutorConfig {
  SizeType32 maxBeamWidth = 1;
  SchedulerConfig schedulerConfig;
  KvCacheConfig kvCacheConfig;
  bool enableChunkedContext = true;
  BatchingType batchingType = BatchingType::kINFLIGHT;
  std::optional<SizeType32> maxBatchSize;  // unset: the engine's
  std::optional<SizeType32> maxNumTokens;  // unset: the engine's
  std::optional<PeftCacheConfig> peftCacheConfig;
  std::optional<SizeType32> maxQueueSize;
  SizeType32 iterStatsMaxIterations = 1000;
  // Chorus: how the CPU runs it.
  int numThreads = 0;              // 0: min(cores, cgroup quota)
  std::string backend = "cpu";     // or "guarded", "reference"
  std::optional<std::string> isa;  // force an instruction set by name
  // Ready as soon as the weights are mapped; steps run while they are moved to where they are read fastest.
  bool importWeightsInBackground = false;
};

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

struct IterationStats {
  std::int64_t iter = 0;
  SizeType32 numActiveRequests = 0;
  SizeType32 numQueuedRequests = 0;
  SizeType32 numContextRequests = 0;
  SizeType32 numGenRequests = 0;
  SizeType32 numCtxTokens = 0;
  SizeType32 numAdapters = 0;  // Chorus: distinct adapters in the step
  double iterLatencyMS = 0;
  std::optional<KvCacheStats> kvCacheStats;  // always set; at the start of the step
};

// Chorus: bytes that an executor takes, over all ranks; allocated before the constructor returns, adapters as they
// come.
struct MemoryUse {
  std::int64_t weights = 0;
  std::int64_t kvCache = 0;
  std::int64_t activations = 0;
  std::int64_t adapterCache = 0;  // at most
  std::int64_t available = 0;     // before loading
  SizeType32 kvCacheTokens = 0;
  std::string table;  // the same for people, a column for each rank
};

class Executor {
 public:
  // Loads the engine directory and starts the loop. Throws chorus::Error (a std::runtime_error) on a bad engine.
  Executor(const std::filesystem::path& modelPath, ModelType modelType, const ExecutorConfig& executorConfig);
  ~Executor();  // as shutdown()
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the request's id at once. Throws when the queue is full or after shutdown; a request that cannot be
  // served (too long, unknown adapter, bad end id) is answered by an error Response.
  IdType enqueueRequest(const Request& request);
  std::vector<IdType> enqueueRequests(const std::vector<Request>& requests);

  // Blocks until at least one response is ready (for the id, or any), or the timeout passes: then empty.
  std::vector<Response> awaitResponses(const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  std::vector<Response> awaitResponses(const IdType& requestId,
                                       const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  std::vector<std::vector<Response>> awaitResponses(
      const std::vector<IdType>& requestIds, const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  SizeType32 getNumResponsesReady(const std::optional<IdType>& requestId = std::nullopt) const;

  // Ends the request after the running step, with finish reason kCANCELLED. Unknown ids are ignored.
  void cancelRequest(IdType requestId);
  // Running and queued requests end as cancelled; later enqueues throw.
  void shutdown();
  bool canEnqueueRequests() const;
  std::vector<IterationStats> getLatestIterationStats();

  // Chorus: makes a PEFT directory loadable under a task id. The directory is read and checked now (Error names what
  // is wrong) and loaded on a worker when a request first needs it, and again after eviction. Registering an id
  // again is a new generation: requests that run keep the old weights.
  void registerAdapter(IdType taskId, const std::filesystem::path& peftDirectory);
  // Chorus: forgets the id; running requests keep their weights.
  void unregisterAdapter(IdType taskId);
  // Chorus: responses of this request go to the callback, on the executor's thread, instead of to awaitResponses.
  // The callback must be quick and must not throw.
  using ResponseCallback = std::function<void(const Response&)>;
  IdType enqueueRequest(const Request& request, ResponseCallback callback);
  // Chorus: the engine's limits and vocabulary, for front ends.
  SizeType32 getMaxInputLen() const;
  SizeType32 getMaxSeqLen() const;
  SizeType32 getMaxBatchSize() const;
  SizeType32 getVocabSize() const;
  MemoryUse getMemoryUse() const;
  // Chorus: the KV pool as the last step left it.
  KvCacheStats getKvCacheStats() const;
  // Chorus: the adapter cache as the last step left it.
  AdapterCacheStats getAdapterCacheStats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus::executor
