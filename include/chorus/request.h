// What a client asks for: Request and its parts. Checks happen in constructors and setters and throw
// std::invalid_argument with TensorRT-LLM's wording.
#pragma once

#include "chorus/types.h"

namespace chorus::executor {

// Unset optionals mean "not asked for", which is not the same as a default value. Greedy is topK 1 or temperature 0;
// with nothing set, greedy as well (TensorRT-LLM's decoder takes topK 0 and topP 0 as greedy).
class SamplingConfig {
 public:
  explicit SamplingConfig(SizeType32 beamWidth = 1, std::optional<SizeType32> topK = std::nullopt,
                          std::optional<FloatType> topP = std::nullopt,
                          std::optional<FloatType> topPMin = std::nullopt,
                          std::optional<TokenIdType> topPResetIds = std::nullopt,
                          std::optional<FloatType> topPDecay = std::nullopt,
                          std::optional<RandomSeedType> seed = std::nullopt,
                          std::optional<FloatType> temperature = std::nullopt,
                          std::optional<SizeType32> minTokens = std::nullopt,
                          std::optional<FloatType> beamSearchDiversityRate = std::nullopt,
                          std::optional<FloatType> repetitionPenalty = std::nullopt,
                          std::optional<FloatType> presencePenalty = std::nullopt,
                          std::optional<FloatType> frequencyPenalty = std::nullopt,
                          std::optional<FloatType> lengthPenalty = std::nullopt,
                          std::optional<SizeType32> earlyStopping = std::nullopt,
                          std::optional<SizeType32> noRepeatNgramSize = std::nullopt,
                          std::optional<SizeType32> numReturnSequences = std::nullopt,
                          std::optional<FloatType> minP = std::nullopt,
                          std::optional<std::vector<SizeType32>> beamWidthArray = std::nullopt);

  SizeType32 getBeamWidth() const { return beamWidth_; }
  std::optional<SizeType32> getTopK() const { return topK_; }
  std::optional<FloatType> getTopP() const { return topP_; }
  std::optional<FloatType> getTopPMin() const { return topPMin_; }
  std::optional<TokenIdType> getTopPResetIds() const { return topPResetIds_; }
  std::optional<FloatType> getTopPDecay() const { return topPDecay_; }
  std::optional<RandomSeedType> getSeed() const { return seed_; }
  std::optional<FloatType> getTemperature() const { return temperature_; }
  std::optional<SizeType32> getMinTokens() const { return minTokens_; }
  std::optional<FloatType> getBeamSearchDiversityRate() const { return beamSearchDiversityRate_; }
  std::optional<FloatType> getRepetitionPenalty() const { return repetitionPenalty_; }
  std::optional<FloatType> getPresencePenalty() const { return presencePenalty_; }
  std::optional<FloatType> getFrequencyPenalty() const { return frequencyPenalty_; }
  std::optional<FloatType> getLengthPenalty() const { return lengthPenalty_; }
  std::optional<SizeType32> getEarlyStopping() const { return earlyStopping_; }
  std::optional<SizeType32> getNoRepeatNgramSize() const { return noRepeatNgramSize_; }
  std::optional<SizeType32> getNumReturnSequences() const { return numReturnSequences_; }
  std::optional<FloatType> getMinP() const { return minP_; }
  std::optional<std::vector<SizeType32>> getBeamWidthArray() const { return beamWidthArray_; }

  void setTopK(std::optional<SizeType32> v);
  void setTopP(std::optional<FloatType> v);
  void setSeed(std::optional<RandomSeedType> v) { seed_ = v; }
  void setTemperature(std::optional<FloatType> v);
  void setMinP(std::optional<FloatType> v);

 private:
  SizeType32 beamWidth_;
  std::optional<SizeType32> topK_;
  std::optional<FloatType> topP_, topPMin_;
  std::optional<TokenIdType> topPResetIds_;
  std::optional<FloatType> topPDecay_;
  std::optional<RandomSeedType> seed_;
  std::optional<FloatType> temperature_;
  std::optional<SizeType32> minTokens_;
  std::optional<FloatType> beamSearchDiversityRate_, repetitionPenalty_, presencePenalty_, frequencyPenalty_,
      lengthPenalty_;
  std::optional<SizeType32> earlyStopping_, noRepeatNgramSize_, numReturnSequences_;
  std::optional<FloatType> minP_;
  std::optional<std::vector<SizeType32>> beamWidthArray_;
};

struct OutputConfig {
  bool returnLogProbs = false;
  bool returnContextLogits = false;
  bool returnGenerationLogits = false;
  bool excludeInputFromOutput = false;
  bool returnEncoderOutput = false;
  bool returnPerfMetrics = false;
};

// An adapter by task id; weights and config (spec S2) both or neither. With them the adapter is cached under the id,
// without them it must be cached, or registered with Executor::registerAdapter.
class LoraConfig {
 public:
  explicit LoraConfig(IdType taskId, std::optional<Tensor> weights = std::nullopt,
                      std::optional<Tensor> config = std::nullopt);
  IdType getTaskId() const { return taskId_; }
  const std::optional<Tensor>& getWeights() const { return weights_; }
  const std::optional<Tensor>& getConfig() const { return config_; }

 private:
  IdType taskId_;
  std::optional<Tensor> weights_;
  std::optional<Tensor> config_;
};

class Request {
 public:
  static constexpr PriorityType kDefaultPriority = 0.5f;

  // inputTokenIds must not be empty; maxTokens > 0.
  Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming = false,
          SamplingConfig samplingConfig = SamplingConfig(), OutputConfig outputConfig = OutputConfig(),
          std::optional<SizeType32> endId = std::nullopt, std::optional<SizeType32> padId = std::nullopt);

  const VecTokens& getInputTokenIds() const { return inputTokenIds_; }
  SizeType32 getMaxTokens() const { return maxTokens_; }
  bool getStreaming() const { return streaming_; }
  const SamplingConfig& getSamplingConfig() const { return samplingConfig_; }
  const OutputConfig& getOutputConfig() const { return outputConfig_; }
  std::optional<SizeType32> getEndId() const { return endId_; }
  std::optional<SizeType32> getPadId() const { return padId_; }
  // Chorus: further end tokens beside endId (generation_config.json may list several).
  const VecTokens& getExtraEndIds() const { return extraEndIds_; }
  const std::vector<VecTokens>& getStopWords() const { return stopWords_; }
  const std::optional<LoraConfig>& getLoraConfig() const { return loraConfig_; }
  std::optional<IdType> getClientId() const { return clientId_; }
  bool getReturnAllGeneratedTokens() const { return returnAllGeneratedTokens_; }
  PriorityType getPriority() const { return priority_; }
  std::optional<std::chrono::milliseconds> getAllottedTimeMs() const { return allottedTimeMs_; }

  void setStreaming(bool v) { streaming_ = v; }
  void setSamplingConfig(const SamplingConfig& v) { samplingConfig_ = v; }
  void setOutputConfig(const OutputConfig& v) { outputConfig_ = v; }
  void setEndId(std::optional<SizeType32> v) { endId_ = v; }
  void setPadId(std::optional<SizeType32> v) { padId_ = v; }
  void setExtraEndIds(VecTokens v) { extraEndIds_ = std::move(v); }
  void setStopWords(std::vector<VecTokens> v) { stopWords_ = std::move(v); }
  void setLoraConfig(std::optional<LoraConfig> v) { loraConfig_ = std::move(v); }
  void setClientId(std::optional<IdType> v) { clientId_ = v; }
  void setReturnAllGeneratedTokens(bool v) { returnAllGeneratedTokens_ = v; }
  void setPriority(PriorityType v);
  void setAllottedTimeMs(std::optional<std::chrono::milliseconds> v) { allottedTimeMs_ = v; }

 private:
  VecTokens inputTokenIds_;
  SizeType32 maxTokens_;
  bool streaming_;
  SamplingConfig samplingConfig_;
  OutputConfig outputConfig_;
  std::optional<SizeType32> endId_, padId_;
  VecTokens extraEndIds_;
  std::vector<VecTokens> stopWords_;
  std::optional<LoraConfig> loraConfig_;
  std::optional<IdType> clientId_;
  bool returnAllGeneratedTokens_ = false;
  PriorityType priority_ = kDefaultPriority;
  std::optional<std::chrono::milliseconds> allottedTimeMs_;
};

}  // namespace chorus::executor
