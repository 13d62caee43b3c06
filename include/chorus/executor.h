// The Executor: one engine, many requests in flight. Names, defaults, checks and error texts follow TensorRT-LLM
// (executor.h of 0.19) where they apply to one machine. Additions are marked "Chorus:".
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "chorus/adapter_report.h"
#include "chorus/executor_config.h"
#include "chorus/kv_cache_events.h"
#include "chorus/live_batch.h"
#include "chorus/request.h"
#include "chorus/response.h"
#include "chorus/statistics.h"
#include "chorus/types.h"

namespace chorus {
class Directory;  // base/directory.h
}

namespace chorus::executor {

// The version of Chorus.
const char* version() noexcept;

// Chorus: memory of an executor in bytes, over all ranks. All of it is allocated before the constructor returns, except
// adapters, which are allocated when they are loaded.
struct MemoryUse {
  std::int64_t weights = 0;
  std::int64_t kvCache = 0;
  std::int64_t activations = 0;
  std::int64_t adapterCache = 0;  // the most that it may take
  std::int64_t available = 0;     // free memory before loading
  SizeType32 kvCacheTokens = 0;
  std::string table;  // the same as text, with a column per rank
};

// Chorus: an adapter's directory that others may change or remove at any time. The functions are called on the thread
// that registers it and on loader threads.
struct AdapterFiles {
  std::filesystem::path path;  // for error messages only; nothing is opened by it
  // Opens the directory for one read of its files. Throws Error.
  std::function<std::shared_ptr<const chorus::Directory>()> open;
  std::function<void(const std::string& contentHash)> onContent;  // see registerAdapter; may be null
  std::function<void()> onGone;  // a load did not find the directory or its files; may be null
  // If set, registration reads only adapter_config.json and the header of adapter_model.safetensors, or the headers in
  // a .nemo archive. The first load checks the values and calls onContent with their hash, or onRefused with what is
  // wrong with them.
  bool deferContent = false;
  std::function<void(const std::string& reason)> onRefused;  // only for the first load; may be null
  // File name of the .nemo archive to read; empty: the directory holds one adapter, as PEFT's files or as an archive.
  std::string archive = {};
  // Called on the thread of registerAdapter or inspectAdapter while it reads, at least once per 64 KiB of files or
  // values. bytes: the bytes read, checked, hashed or packed since the last call. While the function waits for memory
  // (PeftCacheConfig::getLoadMemory), it is called every 20 ms with 16 MiB. If it throws, the function ends with
  // that exception and nothing is registered. May be null; loads do not call it.
  std::function<void(size_t bytes)> onWork = nullptr;
  // Called when registerAdapter ends, in either way. time: how long it waited for memory. Must not throw; may be null.
  std::function<void(std::chrono::nanoseconds time)> onWaited = nullptr;
  std::string name = {};  // of the adapter, in messages; empty: the last part of `path`
};

class Executor {
 public:
  // Loads the engine directory and starts the step loop. Throws chorus::Error (a std::runtime_error) on a bad engine.
  Executor(const std::filesystem::path& modelPath, ModelType modelType, const ExecutorConfig& executorConfig);
  // Encoder models and engines that are not a directory are not supported: these constructors throw an Error.
  Executor(const std::filesystem::path& encoderModelPath, const std::filesystem::path& decoderModelPath,
           ModelType modelType, const ExecutorConfig& executorConfig);
  Executor(const BufferView& engineBuffer, const std::string& jsonConfigStr, ModelType modelType,
           const ExecutorConfig& executorConfig,
           const std::optional<std::map<std::string, Tensor>>& managedWeights = std::nullopt);
  Executor(const BufferView& encoderEngineBuffer, const std::string& encoderJsonConfigStr,
           const BufferView& decoderEngineBuffer, const std::string& decoderJsonConfigStr, ModelType modelType,
           const ExecutorConfig& executorConfig);
  // Does what shutdown() does. Calls of awaitResponses return what is ready, and the destructor waits until they have.
  ~Executor();
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the request's id at once. Throws if the queue is full, after shutdown, and if the request names a logits
  // post-processor that does not exist. A request that cannot be served (too long, unknown adapter, bad end id) is
  // answered by an error Response.
  IdType enqueueRequest(const Request& request);
  // Enqueues all requests or, if it throws, none.
  std::vector<IdType> enqueueRequests(const std::vector<Request>& requests);

  // Blocks until at least one response is ready (of the given id, or of any). Empty if the timeout passes first.
  std::vector<Response> awaitResponses(const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  std::vector<Response> awaitResponses(const IdType& requestId,
                                       const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  std::vector<std::vector<Response>> awaitResponses(
      const std::vector<IdType>& requestIds, const std::optional<std::chrono::milliseconds>& timeout = std::nullopt);
  SizeType32 getNumResponsesReady(const std::optional<IdType>& requestId = std::nullopt) const;

  // Ends the request after the current step, with finish reason kCANCELLED. Unknown ids are ignored.
  void cancelRequest(IdType requestId);
  // Ends running and queued requests as cancelled. Later enqueues throw.
  void shutdown();
  bool canEnqueueRequests() const;
  bool isParticipant() const;  // always true: the process runs all ranks
  // Statistics of the steps since the last call, oldest first; only the last iterStatsMaxIterations steps are kept.
  std::deque<IterationStats> getLatestIterationStats();
  // Per step, statistics of every request that ran, ended or waited in it; only the last requestStatsMaxIterations
  // steps are kept.
  std::deque<RequestStatsPerIteration> getLatestRequestStats();
  // Always empty: ExecutorConfig refuses debug tensors.
  std::deque<DebugTensorsPerIteration> getLatestDebugTensors();
  // Always nullopt: KvCacheConfig refuses event buffers.
  std::optional<std::shared_ptr<KVCacheEventManager>> getKVCacheEventManager() const;

  // Chorus: makes an adapter's directory, or a .nemo file, loadable under a task id. It is read and checked now; an
  // Error names what is wrong. It is loaded on a worker when a request first needs it, and again after an eviction.
  // Registering an id again makes a new generation; running requests keep the old weights.
  //
  // A directory that was rewritten is loaded as it is at that time, and nothing cached for the old content is used for
  // the new. onContent is called with the SHA-256 of the content: now, and on a worker when a load finds different
  // content. An exception that it throws refuses the content. AdapterFiles::deferContent leaves the content to the
  // first load.
  using AdapterContentCallback = std::function<void(const std::string& contentHash)>;
  void registerAdapter(IdType taskId, const std::filesystem::path& adapter, AdapterContentCallback onContent = nullptr);
  // Chorus: the same for a directory that others may change or remove while it is in use.
  void registerAdapter(IdType taskId, AdapterFiles files);
  // Chorus: reads and checks an adapter without registering it. What is wrong with the adapter is in the report. Throws
  // Error only if its directory cannot be opened, or if the engine serves no adapters.
  AdapterReport inspectAdapter(const AdapterFiles& files) const;
  // Chorus: removes the id. Running requests keep their weights.
  void unregisterAdapter(IdType taskId);
  // Chorus: loads a registered adapter into the host cache before a request needs it. `loaded` is called once, on the
  // step thread or in this call: with null when the adapter is there, else with the chorus::Error that prevents it. It
  // must be quick and must not throw. A loaded adapter can be evicted like any other, unless it is pinned: with `pin`
  // it stays until unpinAdapter or unregisterAdapter. The pin follows the id, so new content that is registered under
  // it is loaded and pinned in place of the old one; if that fails, the pin ends and the log has one line. Pinned
  // adapters may take at most half of the host cache, and so much that the largest adapter fits beside them.
  using AdapterLoadedCallback = std::function<void(std::exception_ptr error)>;
  void loadAdapter(IdType taskId, bool pin, AdapterLoadedCallback loaded);
  void unpinAdapter(IdType taskId);
  // Chorus: unpins `from`, and pins `to` if `from` was pinned.
  void moveAdapterPin(IdType from, IdType to);
  // Chorus: responses of these requests go to the callback, on the executor's step thread, and not to awaitResponses.
  // The callback must be quick and must not throw. It may be called before enqueueRequests returns.
  using ResponseCallback = std::function<void(const Response&)>;
  IdType enqueueRequest(const Request& request, ResponseCallback callback);
  std::vector<IdType> enqueueRequests(const std::vector<Request>& requests, ResponseCallback callback);
  // Chorus: the engine's limits and vocabulary, for front ends.
  SizeType32 getMaxInputLen() const;
  SizeType32 getMaxSeqLen() const;
  SizeType32 getMaxBatchSize() const;
  SizeType32 getVocabSize() const;
  MemoryUse getMemoryUse() const;
  // Chorus: the state of the KV block pool after the last step.
  KvCacheStats getKvCacheStats() const;
  // Chorus: the state of the adapter cache after the last step.
  AdapterCacheStats getAdapterCacheStats() const;
  // Chorus: the adapter of a task as it is between two steps: the call waits for the present step. nullopt if it is not
  // registered, and after shutdown.
  std::optional<AdapterState> getAdapterState(IdType taskId);
  // Chorus: all registered adapters in the order of their task ids. The call gets some hundreds of them after each
  // step, so that no step is late, and waits for as many steps; each adapter is as it is then. One caller gets its list
  // after the other. After shutdown the rest is missing.
  std::vector<AdapterState> getAdapterStates();
  // Chorus: the sequences that run, the caches, and totals over all steps: as of the begin of the current step, or of
  // now if nothing runs.
  LiveBatch getLiveBatch() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus::executor
