// The Executor: one engine, many requests in flight. Names, defaults, checks and error texts are TensorRT-LLM's
// (executor.h of 0.19) where they apply to one machine; additions are marked "Chorus:".
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "chorus/executor_config.h"
#include "chorus/kv_cache_events.h"
#include "chorus/request.h"
#include "chorus/response.h"
#include "chorus/statistics.h"
#include "chorus/types.h"

namespace chorus {
class Directory;  // base/directory.h
}

namespace chorus::executor {

// Chorus's own.
const char* version() noexcept;

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

// Chorus: a PEFT directory that others may change or remove at any time. The functions are called by the thread that
// registers it and by loader threads.
struct AdapterFiles {
  std::filesystem::path path;  // for error lines; nothing is opened by it
  // Opens the directory for one reading of its files. Throws Error.
  std::function<std::shared_ptr<const chorus::Directory>()> open;
  std::function<void(const std::string& contentHash)> onContent;  // as of registerAdapter; may be null
  std::function<void()> onGone;  // a load found the directory or its files missing; may be null
  // Registers what adapter_config.json and the header of adapter_model.safetensors say and leaves the values to the
  // first load: it checks them, and calls onContent with their hash, or onRefused with what is wrong with them.
  bool deferContent = false;
  std::function<void(const std::string& reason)> onRefused;  // of the first load alone; may be null
};

class Executor {
 public:
  // Loads the engine directory and starts the loop. Throws chorus::Error (a std::runtime_error) on a bad engine.
  Executor(const std::filesystem::path& modelPath, ModelType modelType, const ExecutorConfig& executorConfig);
  // Encoders, and engines that do not lie in a directory: throw an Error that says so.
  Executor(const std::filesystem::path& encoderModelPath, const std::filesystem::path& decoderModelPath,
           ModelType modelType, const ExecutorConfig& executorConfig);
  Executor(const BufferView& engineBuffer, const std::string& jsonConfigStr, ModelType modelType,
           const ExecutorConfig& executorConfig,
           const std::optional<std::map<std::string, Tensor>>& managedWeights = std::nullopt);
  Executor(const BufferView& encoderEngineBuffer, const std::string& encoderJsonConfigStr,
           const BufferView& decoderEngineBuffer, const std::string& decoderJsonConfigStr, ModelType modelType,
           const ExecutorConfig& executorConfig);
  // As shutdown(); who waits in awaitResponses gets what is there, and is gone before it returns.
  ~Executor();
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the request's id at once. Throws when the queue is full, after shutdown, and for a logits post-processor
  // that is not there; a request that cannot be served (too long, unknown adapter, bad end id) is answered by an error
  // Response.
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
  bool isParticipant() const;  // always: the process runs all ranks
  // Of the steps since the last call, at most ExecutorConfig's iterStatsMaxIterations, the oldest first.
  std::deque<IterationStats> getLatestIterationStats();
  // Of every request that ran, ended or waited in these steps; requestStatsMaxIterations of them.
  std::deque<RequestStatsPerIteration> getLatestRequestStats();
  // Empty: ExecutorConfig refuses to ask for any.
  std::deque<DebugTensorsPerIteration> getLatestDebugTensors();
  // Nothing: KvCacheConfig refuses to ask for events.
  std::optional<std::shared_ptr<KVCacheEventManager>> getKVCacheEventManager() const;

  // Chorus: makes a PEFT directory loadable under a task id. The directory is read and checked now (Error names what
  // is wrong) and loaded on a worker when a request first needs it, and again after eviction. Registering an id
  // again is a new generation: requests that run keep the old weights.
  // A directory that was rewritten meanwhile is loaded as it is then, and nothing that was cached of the old content
  // is used for it. onContent is told the SHA-256 of the content: now, and on a worker whenever other content is found;
  // what it throws refuses it. AdapterFiles::deferContent leaves the content to the first load.
  using AdapterContentCallback = std::function<void(const std::string& contentHash)>;
  void registerAdapter(IdType taskId, const std::filesystem::path& peftDirectory,
                       AdapterContentCallback onContent = nullptr);
  // Chorus: the same for a directory that others may change or remove while it is in use: AdapterFiles.
  void registerAdapter(IdType taskId, AdapterFiles files);
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
