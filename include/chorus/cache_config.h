// An executor's caches: the KV cache and the adapter cache. "Refused" is explained in executor_config.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "chorus/types.h"

namespace chorus::runtime {
// Defaults of an engine for fields that KvCacheConfig leaves unset.
struct RuntimeDefaults {
  std::optional<std::vector<std::int32_t>> maxAttentionWindowVec;
  std::optional<std::int32_t> sinkTokenLength;
};
}  // namespace chorus::runtime

namespace chorus::executor {

// Chorus: which requests may reuse each other's KV blocks. In every scope they must have equal adapter content and
// equal salts.
enum class KvReuseScope {
  kALL = 0,      // all requests
  kADAPTER = 1,  // requests with the same adapter or composition; without an adapter, requests of one client
  kCLIENT = 2,   // requests of one client
};

// The KV cache.
class KvCacheConfig {
 public:
  explicit KvCacheConfig(bool enableBlockReuse = true, std::optional<SizeType32> maxTokens = std::nullopt,
                         std::optional<std::vector<SizeType32>> maxAttentionWindowVec = std::nullopt,
                         std::optional<SizeType32> sinkTokenLength = std::nullopt,
                         std::optional<FloatType> freeGpuMemoryFraction = std::nullopt,
                         std::optional<std::size_t> hostCacheSize = std::nullopt, bool onboardBlocks = true,
                         std::optional<FloatType> crossKvCacheFraction = std::nullopt,
                         std::optional<RetentionPriority> secondaryOffloadMinPriority = std::nullopt,
                         std::size_t eventBufferMaxSize = 0, bool enablePartialReuse = true,
                         bool copyOnPartialReuse = true)
      : enableBlockReuse_(enableBlockReuse),
        maxTokens_(maxTokens),
        maxAttentionWindowVec_(std::move(maxAttentionWindowVec)),
        sinkTokenLength_(sinkTokenLength),
        freeGpuMemoryFraction_(freeGpuMemoryFraction),
        hostCacheSize_(hostCacheSize),
        onboardBlocks_(onboardBlocks),
        crossKvCacheFraction_(crossKvCacheFraction),
        secondaryOffloadMinPriority_(secondaryOffloadMinPriority),
        eventBufferMaxSize_(eventBufferMaxSize),
        enablePartialReuse_(enablePartialReuse),
        copyOnPartialReuse_(copyOnPartialReuse) {}
  // The constructor of later 0.19 versions, which take the engine's defaults before the last two parameters.
  explicit KvCacheConfig(bool enableBlockReuse, std::optional<SizeType32> maxTokens,
                         std::optional<std::vector<SizeType32>> maxAttentionWindowVec,
                         std::optional<SizeType32> sinkTokenLength, std::optional<FloatType> freeGpuMemoryFraction,
                         std::optional<std::size_t> hostCacheSize, bool onboardBlocks,
                         std::optional<FloatType> crossKvCacheFraction,
                         std::optional<RetentionPriority> secondaryOffloadMinPriority, std::size_t eventBufferMaxSize,
                         const std::optional<runtime::RuntimeDefaults>& runtimeDefaults, bool enablePartialReuse = true,
                         bool copyOnPartialReuse = true)
      : KvCacheConfig(enableBlockReuse, maxTokens, std::move(maxAttentionWindowVec), sinkTokenLength,
                      freeGpuMemoryFraction, hostCacheSize, onboardBlocks, crossKvCacheFraction,
                      secondaryOffloadMinPriority, eventBufferMaxSize, enablePartialReuse, copyOnPartialReuse) {
    if (runtimeDefaults) fillEmptyFieldsFromRuntimeDefaults(*runtimeDefaults);
  }

  // Complete blocks stay in the prefix cache after their request until others need the room. A request that begins with
  // the same tokens under the same adapter content starts behind them. Answers are bitwise the same with and without
  // reuse.
  bool getEnableBlockReuse() const { return enableBlockReuse_; }
  // Capacity in tokens, in layers with and without a window alike; unset: derived from freeGpuMemoryFraction.
  std::optional<SizeType32> getMaxTokens() const { return maxTokens_; }
  // Narrows the model's windows: that of layer i to entry i % size(), > 0. Layers with a window need KV cache for its
  // tokens only.
  const std::optional<std::vector<SizeType32>>& getMaxAttentionWindowVec() const { return maxAttentionWindowVec_; }
  // Refused unless 0.
  std::optional<SizeType32> getSinkTokenLength() const { return sinkTokenLength_; }
  // Share of the memory that the engine and the adapter cache leave. Unset: half, because other programs use a CPU's
  // memory too; or what one sequence needs, if that is more.
  std::optional<FloatType> getFreeGpuMemoryFraction() const { return freeGpuMemoryFraction_; }
  // Refused unless 0: KV blocks are in host memory anyway.
  std::optional<std::size_t> getHostCacheSize() const { return hostCacheSize_; }
  bool getOnboardBlocks() const { return onboardBlocks_; }
  // Refused.
  std::optional<FloatType> getCrossKvCacheFraction() const { return crossKvCacheFraction_; }
  // Refused.
  std::optional<RetentionPriority> getSecondaryOffloadMinPriority() const { return secondaryOffloadMinPriority_; }
  // Refused unless 0.
  std::size_t getEventBufferMaxSize() const { return eventBufferMaxSize_; }
  // These two settings have no effect: only complete blocks are reused.
  bool getEnablePartialReuse() const { return enablePartialReuse_; }
  bool getCopyOnPartialReuse() const { return copyOnPartialReuse_; }
  // Chorus: the default is kALL.
  KvReuseScope getReuseScope() const { return reuseScope_; }

  void setEnableBlockReuse(bool v) { enableBlockReuse_ = v; }
  void setMaxTokens(std::optional<SizeType32> v) { maxTokens_ = v; }
  void setMaxAttentionWindowVec(std::vector<SizeType32> v) { maxAttentionWindowVec_ = std::move(v); }
  void setSinkTokenLength(SizeType32 v) { sinkTokenLength_ = v; }
  void setFreeGpuMemoryFraction(std::optional<FloatType> v) { freeGpuMemoryFraction_ = v; }
  void setHostCacheSize(std::size_t v) { hostCacheSize_ = v; }
  void setOnboardBlocks(bool v) { onboardBlocks_ = v; }
  void setCrossKvCacheFraction(FloatType v) { crossKvCacheFraction_ = v; }
  void setSecondaryOffloadMinPriority(std::optional<RetentionPriority> v) { secondaryOffloadMinPriority_ = v; }
  void setEventBufferMaxSize(std::size_t v) { eventBufferMaxSize_ = v; }
  void setEnablePartialReuse(bool v) { enablePartialReuse_ = v; }
  void setCopyOnPartialReuse(bool v) { copyOnPartialReuse_ = v; }
  void setReuseScope(KvReuseScope v) { reuseScope_ = v; }
  void fillEmptyFieldsFromRuntimeDefaults(const runtime::RuntimeDefaults& defaults) {
    if (!maxAttentionWindowVec_) maxAttentionWindowVec_ = defaults.maxAttentionWindowVec;
    if (!sinkTokenLength_) sinkTokenLength_ = defaults.sinkTokenLength;
  }

 private:
  bool enableBlockReuse_;
  std::optional<SizeType32> maxTokens_;
  std::optional<std::vector<SizeType32>> maxAttentionWindowVec_;
  std::optional<SizeType32> sinkTokenLength_;
  std::optional<FloatType> freeGpuMemoryFraction_;
  std::optional<std::size_t> hostCacheSize_;
  bool onboardBlocks_;
  std::optional<FloatType> crossKvCacheFraction_;
  std::optional<RetentionPriority> secondaryOffloadMinPriority_;
  std::size_t eventBufferMaxSize_;
  bool enablePartialReuse_;
  bool copyOnPartialReuse_;
  KvReuseScope reuseScope_ = KvReuseScope::kALL;
};

// Chorus: how A and B of adapters of linears are kept in memory. Those of the token embedding keep the model's type.
enum class LoraStorage {
  kMODEL = 0,  // in the model's type
  kINT8 = 1,   // as 8-bit integers, rounded to nearest, with a float32 scale for each row of A and of B
};

// The adapter cache: a host level and a device level, which holds the adapters that steps read.
class PeftCacheConfig {
 public:
  static constexpr SizeType32 kDefaultOptimalAdapterSize = 8;
  static constexpr SizeType32 kDefaultMaxAdapterSize = 64;
  static constexpr SizeType32 kDefaultMaxPagesPerBlockHost = 24;
  static constexpr SizeType32 kDefaultMaxPagesPerBlockDevice = 8;

  explicit PeftCacheConfig(SizeType32 numHostModuleLayer = 0, SizeType32 numDeviceModuleLayer = 0,
                           SizeType32 optimalAdapterSize = kDefaultOptimalAdapterSize,
                           SizeType32 maxAdapterSize = kDefaultMaxAdapterSize, SizeType32 numPutWorkers = 1,
                           SizeType32 numEnsureWorkers = 1, SizeType32 numCopyStreams = 1,
                           SizeType32 maxPagesPerBlockHost = kDefaultMaxPagesPerBlockHost,
                           SizeType32 maxPagesPerBlockDevice = kDefaultMaxPagesPerBlockDevice,
                           std::optional<FloatType> deviceCachePercent = std::nullopt,
                           std::optional<std::size_t> hostCacheSize = std::nullopt,
                           std::optional<std::string> loraPrefetchDir = std::nullopt)
      : numHostModuleLayer_(numHostModuleLayer),
        numDeviceModuleLayer_(numDeviceModuleLayer),
        optimalAdapterSize_(optimalAdapterSize),
        maxAdapterSize_(maxAdapterSize),
        numPutWorkers_(numPutWorkers),
        numEnsureWorkers_(numEnsureWorkers),
        numCopyStreams_(numCopyStreams),
        maxPagesPerBlockHost_(maxPagesPerBlockHost),
        maxPagesPerBlockDevice_(maxPagesPerBlockDevice),
        deviceCachePercent_(deviceCachePercent),
        hostCacheSize_(hostCacheSize),
        loraPrefetchDir_(std::move(loraPrefetchDir)) {}
  bool operator==(const PeftCacheConfig&) const = default;

  // Capacity of the host level in module-layers of rank 1 of the widest module; 0: derived from hostCacheSize.
  SizeType32 getNumHostModuleLayer() const { return numHostModuleLayer_; }
  // Capacity of the device level, in the same unit; 0: derived from deviceCachePercent.
  SizeType32 getNumDeviceModuleLayer() const { return numDeviceModuleLayer_; }
  SizeType32 getOptimalAdapterSize() const { return optimalAdapterSize_; }
  SizeType32 getMaxAdapterSize() const { return maxAdapterSize_; }
  // Threads that load adapters.
  SizeType32 getNumPutWorkers() const { return numPutWorkers_; }
  SizeType32 getNumEnsureWorkers() const { return numEnsureWorkers_; }
  SizeType32 getNumCopyStreams() const { return numCopyStreams_; }
  SizeType32 getMaxPagesPerBlockHost() const { return maxPagesPerBlockHost_; }
  SizeType32 getMaxPagesPerBlockDevice() const { return maxPagesPerBlockDevice_; }
  // Device level: share of the memory that is free after the engine, in (0, 1].
  std::optional<FloatType> getDeviceCachePercent() const { return deviceCachePercent_; }
  // Host level, in bytes. Unset: 1 GiB or a quarter of the free memory, whichever is less, but at least one adapter of
  // maxAdapterSize.
  std::optional<std::size_t> getHostCacheSize() const { return hostCacheSize_; }
  // Directory of converted adapters that are known from the start: DIR/TASK_ID/model.lora_weights.npy and
  // model.lora_config.npy.
  const std::optional<std::string>& getLoraPrefetchDir() const { return loraPrefetchDir_; }

  // Chorus: the setters are an addition.
  void setNumHostModuleLayer(SizeType32 v) { numHostModuleLayer_ = v; }
  void setNumDeviceModuleLayer(SizeType32 v) { numDeviceModuleLayer_ = v; }
  void setOptimalAdapterSize(SizeType32 v) { optimalAdapterSize_ = v; }
  void setMaxAdapterSize(SizeType32 v) { maxAdapterSize_ = v; }
  void setNumPutWorkers(SizeType32 v) { numPutWorkers_ = v; }
  void setNumEnsureWorkers(SizeType32 v) { numEnsureWorkers_ = v; }
  void setNumCopyStreams(SizeType32 v) { numCopyStreams_ = v; }
  void setMaxPagesPerBlockHost(SizeType32 v) { maxPagesPerBlockHost_ = v; }
  void setMaxPagesPerBlockDevice(SizeType32 v) { maxPagesPerBlockDevice_ = v; }
  void setDeviceCachePercent(std::optional<FloatType> v) { deviceCachePercent_ = v; }
  void setHostCacheSize(std::optional<std::size_t> v) { hostCacheSize_ = v; }
  void setLoraPrefetchDir(std::optional<std::string> v) { loraPrefetchDir_ = std::move(v); }
  // Chorus: capacity in adapters of rank maxAdapterSize on every module, as NIM counts it. It takes precedence over the
  // fields above; smaller adapters take proportionally less of it. Unset: the fields above apply.
  std::optional<SizeType32> getMaxHostAdapters() const { return maxHostAdapters_; }
  std::optional<SizeType32> getMaxDeviceAdapters() const { return maxDeviceAdapters_; }
  void setMaxHostAdapters(std::optional<SizeType32> v) { maxHostAdapters_ = v; }
  void setMaxDeviceAdapters(std::optional<SizeType32> v) { maxDeviceAdapters_ = v; }
  // Chorus: what happens to a request whose adapters do not fit into the host level beside those of the other requests
  // that run or wait. False: it waits, as in TensorRT-LLM. True: it is answered with an error of
  // ResponseErrorCode::kBUSY, as NIM does.
  bool getRejectWhenFull() const { return rejectWhenFull_; }
  void setRejectWhenFull(bool v) { rejectWhenFull_ = v; }
  // Chorus: how A and B of adapters are kept.
  LoraStorage getLoraStorage() const { return loraStorage_; }
  void setLoraStorage(LoraStorage v) { loraStorage_ = v; }
  // Chorus: limit in bytes on the files that are read for adapters at the same time and on what is converted from them,
  // until the adapters are in the host level. One adapter may take three quarters of it. Unset: twice the largest
  // adapter of maxAdapterSize in float32, or the host level's capacity up to 1 GiB if that is more; at least 64 MiB.
  std::optional<std::size_t> getLoadMemory() const { return loadMemory_; }
  void setLoadMemory(std::optional<std::size_t> v) { loadMemory_ = v; }

 private:
  SizeType32 numHostModuleLayer_;
  SizeType32 numDeviceModuleLayer_;
  SizeType32 optimalAdapterSize_;
  SizeType32 maxAdapterSize_;
  SizeType32 numPutWorkers_;
  SizeType32 numEnsureWorkers_;
  SizeType32 numCopyStreams_;
  SizeType32 maxPagesPerBlockHost_;
  SizeType32 maxPagesPerBlockDevice_;
  std::optional<FloatType> deviceCachePercent_;
  std::optional<std::size_t> hostCacheSize_;
  std::optional<std::string> loraPrefetchDir_;
  std::optional<SizeType32> maxHostAdapters_, maxDeviceAdapters_;
  bool rejectWhenFull_ = false;
  LoraStorage loraStorage_ = LoraStorage::kMODEL;
  std::optional<std::size_t> loadMemory_;
};

}  // namespace chorus::executor
