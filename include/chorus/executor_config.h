// The configuration of an Executor. A field marked "refused" is accepted only at its default or as its comment says:
// otherwise the Executor's constructor throws an Error that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "chorus/cache_config.h"
#include "chorus/decoding_mode.h"
#include "chorus/request_config.h"
#include "chorus/types.h"

namespace chorus::mpi {
class MpiComm;
}  // namespace chorus::mpi

namespace chorus::executor {

// Run-time tuning of the step limits to the requests' lengths; refused unless both are off.
class DynamicBatchConfig {
 public:
  static constexpr SizeType32 kDefaultDynamicBatchMovingAverageWindow = 128;
  // Pairs (number of runnable requests, batch size): below that number, this batch size.
  static inline const std::vector<std::pair<SizeType32, SizeType32>> kDefaultBatchSizeTable{
      {144, 128}, {336, 256}, {672, 512}, {832, 768}, {1280, 1024}, {1664, 1536}};

  explicit DynamicBatchConfig(bool enableBatchSizeTuning = false, bool enableMaxNumTokensTuning = false,
                              SizeType32 dynamicBatchMovingAverageWindow = kDefaultDynamicBatchMovingAverageWindow,
                              std::vector<std::pair<SizeType32, SizeType32>> batchSizeTable = kDefaultBatchSizeTable)
      : enableBatchSizeTuning_(enableBatchSizeTuning),
        enableMaxNumTokensTuning_(enableMaxNumTokensTuning),
        dynamicBatchMovingAverageWindow_(dynamicBatchMovingAverageWindow),
        batchSizeTable_(std::move(batchSizeTable)) {}
  bool operator==(const DynamicBatchConfig&) const = default;

  bool getEnableBatchSizeTuning() const { return enableBatchSizeTuning_; }
  bool getEnableMaxNumTokensTuning() const { return enableMaxNumTokensTuning_; }
  SizeType32 getDynamicBatchMovingAverageWindow() const { return dynamicBatchMovingAverageWindow_; }
  const std::vector<std::pair<SizeType32, SizeType32>>& getBatchSizeTable() const { return batchSizeTable_; }

 private:
  bool enableBatchSizeTuning_;
  bool enableMaxNumTokensTuning_;
  SizeType32 dynamicBatchMovingAverageWindow_;
  std::vector<std::pair<SizeType32, SizeType32>> batchSizeTable_;
};

class SchedulerConfig {
 public:
  explicit SchedulerConfig(
      CapacitySchedulerPolicy capacitySchedulerPolicy = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT,
      std::optional<ContextChunkingPolicy> contextChunkingPolicy = std::nullopt,
      std::optional<DynamicBatchConfig> dynamicBatchConfig = std::nullopt)
      : capacitySchedulerPolicy_(capacitySchedulerPolicy),
        contextChunkingPolicy_(contextChunkingPolicy),
        dynamicBatchConfig_(std::move(dynamicBatchConfig)) {}
  bool operator==(const SchedulerConfig&) const = default;

  CapacitySchedulerPolicy getCapacitySchedulerPolicy() const { return capacitySchedulerPolicy_; }
  // Unset: kFIRST_COME_FIRST_SERVED.
  std::optional<ContextChunkingPolicy> getContextChunkingPolicy() const { return contextChunkingPolicy_; }
  const std::optional<DynamicBatchConfig>& getDynamicBatchConfig() const { return dynamicBatchConfig_; }

 private:
  CapacitySchedulerPolicy capacitySchedulerPolicy_;
  std::optional<ContextChunkingPolicy> contextChunkingPolicy_;
  std::optional<DynamicBatchConfig> dynamicBatchConfig_;
};

// Settings of GPU kernels. The first two have no effect here: threads share long contexts, and sums are float32 anyway.
class ExtendedRuntimePerfKnobConfig {
 public:
  explicit ExtendedRuntimePerfKnobConfig(bool multiBlockMode = true, bool enableContextFMHAFP32Acc = false,
                                         bool cudaGraphMode = false, SizeType32 cudaGraphCacheSize = 0)
      : multiBlockMode_(multiBlockMode),
        enableContextFMHAFP32Acc_(enableContextFMHAFP32Acc),
        cudaGraphMode_(cudaGraphMode),
        cudaGraphCacheSize_(cudaGraphCacheSize) {}
  bool operator==(const ExtendedRuntimePerfKnobConfig&) const = default;

  bool getMultiBlockMode() const { return multiBlockMode_; }
  bool getEnableContextFMHAFP32Acc() const { return enableContextFMHAFP32Acc_; }
  // Refused.
  bool getCudaGraphMode() const { return cudaGraphMode_; }
  // Refused unless 0.
  SizeType32 getCudaGraphCacheSize() const { return cudaGraphCacheSize_; }

  void setMultiBlockMode(bool v) { multiBlockMode_ = v; }
  void setEnableContextFMHAFP32Acc(bool v) { enableContextFMHAFP32Acc_ = v; }
  void setCudaGraphMode(bool v) { cudaGraphMode_ = v; }
  void setCudaGraphCacheSize(SizeType32 v) { cudaGraphCacheSize_ = v; }

 private:
  bool multiBlockMode_;
  bool enableContextFMHAFP32Acc_;
  bool cudaGraphMode_;
  SizeType32 cudaGraphCacheSize_;
};

// Dumps of the network's tensors; refused unless none is requested.
class DebugConfig {
 public:
  explicit DebugConfig(bool debugInputTensors = false, bool debugOutputTensors = false,
                       std::vector<std::string> debugTensorNames = {}, SizeType32 debugTensorsMaxIterations = 0)
      : debugInputTensors_(debugInputTensors),
        debugOutputTensors_(debugOutputTensors),
        debugTensorNames_(std::move(debugTensorNames)),
        debugTensorsMaxIterations_(debugTensorsMaxIterations) {}
  bool operator==(const DebugConfig&) const = default;

  bool getDebugInputTensors() const { return debugInputTensors_; }
  bool getDebugOutputTensors() const { return debugOutputTensors_; }
  const std::vector<std::string>& getDebugTensorNames() const { return debugTensorNames_; }
  SizeType32 getDebugTensorsMaxIterations() const { return debugTensorsMaxIterations_; }

  void setDebugInputTensors(bool v) { debugInputTensors_ = v; }
  void setDebugOutputTensors(bool v) { debugOutputTensors_ = v; }
  void setDebugTensorNames(std::vector<std::string> v) { debugTensorNames_ = std::move(v); }
  void setDebugTensorsMaxIterations(SizeType32 v) { debugTensorsMaxIterations_ = v; }

 private:
  bool debugInputTensors_;
  bool debugOutputTensors_;
  std::vector<std::string> debugTensorNames_;
  SizeType32 debugTensorsMaxIterations_;
};

// Orchestrator mode; refused, because all ranks of an engine run in this process.
class OrchestratorConfig {
 public:
  explicit OrchestratorConfig(bool isOrchestrator = true, std::string workerExecutablePath = "",
                              std::shared_ptr<mpi::MpiComm> orchLeaderComm = nullptr, bool spawnProcesses = true)
      : isOrchestrator_(isOrchestrator),
        workerExecutablePath_(std::move(workerExecutablePath)),
        orchLeaderComm_(std::move(orchLeaderComm)),
        spawnProcesses_(spawnProcesses) {}

  bool getIsOrchestrator() const { return isOrchestrator_; }
  const std::string& getWorkerExecutablePath() const { return workerExecutablePath_; }
  const std::shared_ptr<mpi::MpiComm>& getOrchLeaderComm() const { return orchLeaderComm_; }
  bool getSpawnProcesses() const { return spawnProcesses_; }

  void setIsOrchestrator(bool v) { isOrchestrator_ = v; }
  void setWorkerExecutablePath(std::string v) { workerExecutablePath_ = std::move(v); }
  void setOrchLeaderComm(std::shared_ptr<mpi::MpiComm> v) { orchLeaderComm_ = std::move(v); }
  void setSpawnProcesses(bool v) { spawnProcesses_ = v; }

 private:
  bool isOrchestrator_;
  std::string workerExecutablePath_;
  std::shared_ptr<mpi::MpiComm> orchLeaderComm_;
  bool spawnProcesses_;
};

// Placement of the ranks. All ranks of an engine run in this process, so every mode but kLEADER, and any ids, are
// refused.
class ParallelConfig {
 public:
  explicit ParallelConfig(CommunicationType communicationType = CommunicationType::kMPI,
                          CommunicationMode communicationMode = CommunicationMode::kLEADER,
                          std::optional<std::vector<SizeType32>> deviceIds = std::nullopt,
                          std::optional<std::vector<SizeType32>> participantIds = std::nullopt,
                          std::optional<OrchestratorConfig> orchestratorConfig = std::nullopt)
      : communicationType_(communicationType),
        communicationMode_(communicationMode),
        deviceIds_(std::move(deviceIds)),
        participantIds_(std::move(participantIds)),
        orchestratorConfig_(std::move(orchestratorConfig)) {}

  CommunicationType getCommunicationType() const { return communicationType_; }
  CommunicationMode getCommunicationMode() const { return communicationMode_; }
  const std::optional<std::vector<SizeType32>>& getDeviceIds() const { return deviceIds_; }
  const std::optional<std::vector<SizeType32>>& getParticipantIds() const { return participantIds_; }
  const std::optional<OrchestratorConfig>& getOrchestratorConfig() const { return orchestratorConfig_; }

  void setCommunicationType(CommunicationType v) { communicationType_ = v; }
  void setCommunicationMode(CommunicationMode v) { communicationMode_ = v; }
  void setDeviceIds(std::vector<SizeType32> v) { deviceIds_ = std::move(v); }
  void setParticipantIds(std::vector<SizeType32> v) { participantIds_ = std::move(v); }
  void setOrchestratorConfig(OrchestratorConfig v) { orchestratorConfig_ = std::move(v); }

 private:
  CommunicationType communicationType_;
  CommunicationMode communicationMode_;
  std::optional<std::vector<SizeType32>> deviceIds_;
  std::optional<std::vector<SizeType32>> participantIds_;
  std::optional<OrchestratorConfig> orchestratorConfig_;
};

// Selects how tokens are chosen for all requests. It is refused unless the mode is unset, Auto or TopKTopP and nothing
// else is set.
class DecodingConfig {
 public:
  explicit DecodingConfig(std::optional<DecodingMode> decodingMode = std::nullopt,
                          std::optional<LookaheadDecodingConfig> lookaheadDecodingConfig = std::nullopt,
                          std::optional<MedusaChoices> medusaChoices = std::nullopt,
                          std::optional<EagleConfig> eagleConfig = std::nullopt)
      : decodingMode_(decodingMode),
        lookaheadDecodingConfig_(lookaheadDecodingConfig),
        medusaChoices_(std::move(medusaChoices)),
        eagleConfig_(std::move(eagleConfig)) {}
  bool operator==(const DecodingConfig&) const = default;

  std::optional<DecodingMode> getDecodingMode() const { return decodingMode_; }
  const std::optional<LookaheadDecodingConfig>& getLookaheadDecodingConfig() const { return lookaheadDecodingConfig_; }
  SizeType32 getLookaheadDecodingMaxNumRequest() const { return 8; }
  const std::optional<MedusaChoices>& getMedusaChoices() const { return medusaChoices_; }
  const std::optional<EagleConfig>& getEagleConfig() const { return eagleConfig_; }

  // The setter of a decoding method also sets its mode.
  void setDecodingMode(const DecodingMode& v) { decodingMode_ = v; }
  void setLookaheadDecodingConfig(const LookaheadDecodingConfig& v) {
    lookaheadDecodingConfig_ = v;
    decodingMode_ = DecodingMode::Lookahead();
  }
  void enableSeamlessLookaheadDecoding() { setLookaheadDecodingConfig(LookaheadDecodingConfig()); }
  void setMedusaChoices(MedusaChoices v) {
    medusaChoices_ = std::move(v);
    decodingMode_ = DecodingMode::Medusa();
  }
  void setEagleConfig(EagleConfig v) {
    eagleConfig_ = std::move(v);
    decodingMode_ = DecodingMode::Eagle();
  }

 private:
  std::optional<DecodingMode> decodingMode_;
  std::optional<LookaheadDecodingConfig> lookaheadDecodingConfig_;
  std::optional<MedusaChoices> medusaChoices_;
  std::optional<EagleConfig> eagleConfig_;
};

// Refused.
class SpeculativeDecodingConfig {
 public:
  explicit SpeculativeDecodingConfig(bool inFastLogits = false) : fastLogits(inFastLogits) {}
  bool operator==(const SpeculativeDecodingConfig&) const = default;
  bool fastLogits;
};

// Constrained output; refused.
class GuidedDecodingConfig {
 public:
  enum class GuidedDecodingBackend { kXGRAMMAR = 0 };

  explicit GuidedDecodingConfig(GuidedDecodingBackend backend,
                                std::optional<std::vector<std::string>> encodedVocab = std::nullopt,
                                std::optional<std::string> tokenizerStr = std::nullopt,
                                std::optional<std::vector<TokenIdType>> stopTokenIds = std::nullopt)
      : backend_(backend),
        encodedVocab_(std::move(encodedVocab)),
        tokenizerStr_(std::move(tokenizerStr)),
        stopTokenIds_(std::move(stopTokenIds)) {}
  bool operator==(const GuidedDecodingConfig&) const = default;

  GuidedDecodingBackend getBackend() const { return backend_; }
  const std::optional<std::vector<std::string>>& getEncodedVocab() const { return encodedVocab_; }
  const std::optional<std::string>& getTokenizerStr() const { return tokenizerStr_; }
  const std::optional<std::vector<TokenIdType>>& getStopTokenIds() const { return stopTokenIds_; }

  void setBackend(GuidedDecodingBackend v) { backend_ = v; }
  void setEncodedVocab(std::vector<std::string> v) { encodedVocab_ = std::move(v); }
  void setTokenizerStr(std::string v) { tokenizerStr_ = std::move(v); }
  void setStopTokenIds(std::vector<TokenIdType> v) { stopTokenIds_ = std::move(v); }
  // Throws std::invalid_argument without a vocabulary.
  void validate() const {
    if (!encodedVocab_) {
      throw std::invalid_argument("Guided decoding is enabled with XGrammar, but EncodedVocab is not set");
    }
  }

 private:
  GuidedDecodingBackend backend_;
  std::optional<std::vector<std::string>> encodedVocab_;
  std::optional<std::string> tokenizerStr_;
  std::optional<std::vector<TokenIdType>> stopTokenIds_;
};

// Functions that change logits. Requests select them by name.
class LogitsPostProcessorConfig {
 public:
  explicit LogitsPostProcessorConfig(std::optional<LogitsPostProcessorMap> processorMap = std::nullopt,
                                     std::optional<LogitsPostProcessorBatched> processorBatched = std::nullopt,
                                     bool replicate = true)
      : processorMap_(std::move(processorMap)), processorBatched_(std::move(processorBatched)), replicate_(replicate) {}

  const std::optional<LogitsPostProcessorMap>& getProcessorMap() const { return processorMap_; }
  // Selected by Request::kBatchedPostProcessorName.
  const std::optional<LogitsPostProcessorBatched>& getProcessorBatched() const { return processorBatched_; }
  // No effect: tensor-parallel ranks share one set of logits here, so a function is called once either way.
  bool getReplicate() const { return replicate_; }

  void setProcessorMap(LogitsPostProcessorMap v) { processorMap_ = std::move(v); }
  void setProcessorBatched(LogitsPostProcessorBatched v) { processorBatched_ = std::move(v); }
  void setReplicate(bool v) { replicate_ = v; }

 private:
  std::optional<LogitsPostProcessorMap> processorMap_;
  std::optional<LogitsPostProcessorBatched> processorBatched_;
  bool replicate_;
};

class ExecutorConfig {
 public:
  static constexpr std::uint64_t kDefaultMaxSeqIdleMicroseconds = 180000000;
  static constexpr SizeType32 kDefaultIterStatsMaxIterations = 1000;
  // Off by default, because it visits every request in every step.
  static constexpr SizeType32 kDefaultRequestStatsMaxIterations = 0;

  explicit ExecutorConfig(SizeType32 maxBeamWidth = 1, SchedulerConfig schedulerConfig = SchedulerConfig(),
                          KvCacheConfig kvCacheConfig = KvCacheConfig(), bool enableChunkedContext = true,
                          bool normalizeLogProbs = true,
                          SizeType32 iterStatsMaxIterations = kDefaultIterStatsMaxIterations,
                          SizeType32 requestStatsMaxIterations = kDefaultRequestStatsMaxIterations,
                          BatchingType batchingType = BatchingType::kINFLIGHT,
                          std::optional<SizeType32> maxBatchSize = std::nullopt,
                          std::optional<SizeType32> maxNumTokens = std::nullopt,
                          std::optional<ParallelConfig> parallelConfig = std::nullopt,
                          std::optional<PeftCacheConfig> peftCacheConfig = std::nullopt,
                          std::optional<LogitsPostProcessorConfig> logitsPostProcessorConfig = std::nullopt,
                          std::optional<DecodingConfig> decodingConfig = std::nullopt, float gpuWeightsPercent = 1,
                          std::optional<SizeType32> maxQueueSize = std::nullopt,
                          ExtendedRuntimePerfKnobConfig extendedRuntimePerfKnobConfig = ExtendedRuntimePerfKnobConfig(),
                          std::optional<DebugConfig> debugConfig = std::nullopt, SizeType32 recvPollPeriodMs = 0,
                          std::uint64_t maxSeqIdleMicroseconds = kDefaultMaxSeqIdleMicroseconds,
                          std::optional<SpeculativeDecodingConfig> specDecConfig = std::nullopt,
                          std::optional<GuidedDecodingConfig> guidedDecodingConfig = std::nullopt,
                          std::optional<std::vector<AdditionalModelOutput>> additionalModelOutputs = std::nullopt,
                          bool gatherGenerationLogits = false, bool useVariableBeamWidthSearch = false)
      : maxBeamWidth_(maxBeamWidth),
        schedulerConfig_(std::move(schedulerConfig)),
        kvCacheConfig_(std::move(kvCacheConfig)),
        enableChunkedContext_(enableChunkedContext),
        normalizeLogProbs_(normalizeLogProbs),
        iterStatsMaxIterations_(iterStatsMaxIterations),
        requestStatsMaxIterations_(requestStatsMaxIterations),
        batchingType_(batchingType),
        maxBatchSize_(maxBatchSize),
        maxNumTokens_(maxNumTokens),
        parallelConfig_(std::move(parallelConfig)),
        peftCacheConfig_(std::move(peftCacheConfig)),
        logitsPostProcessorConfig_(std::move(logitsPostProcessorConfig)),
        decodingConfig_(std::move(decodingConfig)),
        gpuWeightsPercent_(gpuWeightsPercent),
        maxQueueSize_(maxQueueSize),
        extendedRuntimePerfKnobConfig_(std::move(extendedRuntimePerfKnobConfig)),
        debugConfig_(std::move(debugConfig)),
        recvPollPeriodMs_(recvPollPeriodMs),
        maxSeqIdleMicroseconds_(maxSeqIdleMicroseconds),
        specDecConfig_(std::move(specDecConfig)),
        guidedDecodingConfig_(std::move(guidedDecodingConfig)),
        additionalModelOutputs_(std::move(additionalModelOutputs)),
        gatherGenerationLogits_(gatherGenerationLogits),
        useVariableBeamWidthSearch_(useVariableBeamWidthSearch) {}

  SizeType32 getMaxBeamWidth() const { return maxBeamWidth_; }
  const SchedulerConfig& getSchedulerConfig() const { return schedulerConfig_; }
  const KvCacheConfig& getKvCacheConfig() const { return kvCacheConfig_; }
  bool getEnableChunkedContext() const { return enableChunkedContext_; }
  // Applies to beams only.
  bool getNormalizeLogProbs() const { return normalizeLogProbs_; }
  // Numbers of steps whose statistics are kept for getLatestIterationStats and getLatestRequestStats.
  SizeType32 getIterStatsMaxIterations() const { return iterStatsMaxIterations_; }
  SizeType32 getRequestStatsMaxIterations() const { return requestStatsMaxIterations_; }
  BatchingType getBatchingType() const { return batchingType_; }
  // Unset: the engine's limit.
  std::optional<SizeType32> getMaxBatchSize() const { return maxBatchSize_; }
  // Unset: the engine's limit.
  std::optional<SizeType32> getMaxNumTokens() const { return maxNumTokens_; }
  const std::optional<ParallelConfig>& getParallelConfig() const { return parallelConfig_; }
  const std::optional<PeftCacheConfig>& getPeftCacheConfig() const { return peftCacheConfig_; }
  const std::optional<LogitsPostProcessorConfig>& getLogitsPostProcessorConfig() const {
    return logitsPostProcessorConfig_;
  }
  const std::optional<DecodingConfig>& getDecodingConfig() const { return decodingConfig_; }
  // Refused unless 1.
  float getGpuWeightsPercent() const { return gpuWeightsPercent_; }
  // The most requests that may wait for their first step; further ones are refused. The requests of one client id may
  // take at most as many places as they leave free.
  std::optional<SizeType32> getMaxQueueSize() const { return maxQueueSize_; }
  // Chorus: which waiting request gets a free slot. False: one of the client that runs the fewest sequences. True: one
  // of the group (Request::getFairShare()) that was served the fewest tokens for its weight; a prompt's tokens count
  // once, generated tokens twice.
  bool getWeightedFairness() const { return weightedFairness_; }
  const ExtendedRuntimePerfKnobConfig& getExtendedRuntimePerfKnobConfig() const {
    return extendedRuntimePerfKnobConfig_;
  }
  const std::optional<DebugConfig>& getDebugConfig() const { return debugConfig_; }
  // Period of an orchestrator; refused unless 0.
  SizeType32 getRecvPollPeriodMs() const { return recvPollPeriodMs_; }
  // No effect, because a running request takes part in every step; must be positive.
  std::uint64_t getMaxSeqIdleMicroseconds() const { return maxSeqIdleMicroseconds_; }
  // Refused.
  const std::optional<SpeculativeDecodingConfig>& getSpecDecConfig() const { return specDecConfig_; }
  // Refused.
  const std::optional<GuidedDecodingConfig>& getGuidedDecodingConfig() const { return guidedDecodingConfig_; }
  // Refused unless empty.
  const std::optional<std::vector<AdditionalModelOutput>>& getAdditionalModelOutputs() const {
    return additionalModelOutputs_;
  }
  // No effect: requests may ask for generation logits in any case.
  bool getGatherGenerationLogits() const { return gatherGenerationLogits_; }
  // Refused.
  bool getUseVariableBeamWidthSearch() const { return useVariableBeamWidthSearch_; }

  void setMaxBeamWidth(SizeType32 v) { maxBeamWidth_ = v; }
  void setSchedulerConfig(SchedulerConfig v) { schedulerConfig_ = std::move(v); }
  void setKvCacheConfig(KvCacheConfig v) { kvCacheConfig_ = std::move(v); }
  void setEnableChunkedContext(bool v) { enableChunkedContext_ = v; }
  void setNormalizeLogProbs(bool v) { normalizeLogProbs_ = v; }
  void setIterStatsMaxIterations(SizeType32 v) { iterStatsMaxIterations_ = v; }
  void setRequestStatsMaxIterations(SizeType32 v) { requestStatsMaxIterations_ = v; }
  void setBatchingType(BatchingType v) { batchingType_ = v; }
  void setMaxBatchSize(std::optional<SizeType32> v) { maxBatchSize_ = v; }
  void setMaxNumTokens(std::optional<SizeType32> v) { maxNumTokens_ = v; }
  void setParallelConfig(ParallelConfig v) { parallelConfig_ = std::move(v); }
  void setPeftCacheConfig(PeftCacheConfig v) { peftCacheConfig_ = std::move(v); }
  void setLogitsPostProcessorConfig(LogitsPostProcessorConfig v) { logitsPostProcessorConfig_ = std::move(v); }
  void setDecodingConfig(DecodingConfig v) { decodingConfig_ = std::move(v); }
  void setGpuWeightsPercent(float v) { gpuWeightsPercent_ = v; }
  void setMaxQueueSize(std::optional<SizeType32> v) { maxQueueSize_ = v; }
  void setWeightedFairness(bool v) { weightedFairness_ = v; }
  void setExtendedRuntimePerfKnobConfig(ExtendedRuntimePerfKnobConfig v) {
    extendedRuntimePerfKnobConfig_ = std::move(v);
  }
  void setDebugConfig(DebugConfig v) { debugConfig_ = std::move(v); }
  void setRecvPollPeriodMs(SizeType32 v) { recvPollPeriodMs_ = v; }
  void setMaxSeqIdleMicroseconds(std::uint64_t v) { maxSeqIdleMicroseconds_ = v; }
  void setSpecDecConfig(SpeculativeDecodingConfig v) { specDecConfig_ = std::move(v); }
  void setGuidedDecodingConfig(GuidedDecodingConfig v) { guidedDecodingConfig_ = std::move(v); }
  void setAdditionalModelOutputs(std::vector<AdditionalModelOutput> v) { additionalModelOutputs_ = std::move(v); }
  void setGatherGenerationLogits(bool v) { gatherGenerationLogits_ = v; }
  void setUseVariableBeamWidthSearch(bool v) { useVariableBeamWidthSearch_ = v; }

  SchedulerConfig& getSchedulerConfigRef() { return schedulerConfig_; }
  KvCacheConfig& getKvCacheConfigRef() { return kvCacheConfig_; }

  // Chorus: execution on the CPU.
  // 0: as many as cores that this process may run on, at most the cgroup's CPU quota.
  int getNumThreads() const { return numThreads_; }
  void setNumThreads(int v) { numThreads_ = v; }
  // "cpu", "guarded" or "reference".
  const std::string& getBackend() const { return backend_; }
  void setBackend(std::string v) { backend_ = std::move(v); }
  // Forces an instruction set by name.
  const std::optional<std::string>& getIsa() const { return isa_; }
  void setIsa(std::optional<std::string> v) { isa_ = std::move(v); }
  // If set, the executor is ready as soon as the weights are mapped, and steps run while the weights are moved to where
  // they are read fastest.
  bool getImportWeightsInBackground() const { return importWeightsInBackground_; }
  void setImportWeightsInBackground(bool v) { importWeightsInBackground_ = v; }

 private:
  SizeType32 maxBeamWidth_;
  SchedulerConfig schedulerConfig_;
  KvCacheConfig kvCacheConfig_;
  bool enableChunkedContext_;
  bool normalizeLogProbs_;
  SizeType32 iterStatsMaxIterations_;
  SizeType32 requestStatsMaxIterations_;
  BatchingType batchingType_;
  std::optional<SizeType32> maxBatchSize_;
  std::optional<SizeType32> maxNumTokens_;
  std::optional<ParallelConfig> parallelConfig_;
  std::optional<PeftCacheConfig> peftCacheConfig_;
  std::optional<LogitsPostProcessorConfig> logitsPostProcessorConfig_;
  std::optional<DecodingConfig> decodingConfig_;
  float gpuWeightsPercent_;
  std::optional<SizeType32> maxQueueSize_;
  bool weightedFairness_ = false;
  ExtendedRuntimePerfKnobConfig extendedRuntimePerfKnobConfig_;
  std::optional<DebugConfig> debugConfig_;
  SizeType32 recvPollPeriodMs_;
  std::uint64_t maxSeqIdleMicroseconds_;
  std::optional<SpeculativeDecodingConfig> specDecConfig_;
  std::optional<GuidedDecodingConfig> guidedDecodingConfig_;
  std::optional<std::vector<AdditionalModelOutput>> additionalModelOutputs_;
  bool gatherGenerationLogits_;
  bool useVariableBeamWidthSearch_;
  int numThreads_ = 0;
  std::string backend_ = "cpu";
  std::optional<std::string> isa_;
  bool importWeightsInBackground_ = false;
};

}  // namespace chorus::executor
