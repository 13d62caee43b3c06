// What a client asks for: Request and its parts. Checks happen in constructors and setters and throw
// std::invalid_argument with TensorRT-LLM's wording.
#pragma once

#include <list>

#include "chorus/types.h"

namespace chorus::executor {

// Unset optionals mean "not asked for", which is not the same as a default value. Greedy is topK 1 or temperature 0;
// with nothing set, greedy as well (TensorRT-LLM's decoder takes topK 0 and topP 0 as greedy).
//
// What happens to a row of logits, in TensorRT-LLM's order: embeddingBias is added, temperature divides,
// repetitionPenalty divides (multiplies below 0), presencePenalty and frequencyPenalty times the count are subtracted,
// end tokens are banned below minTokens, then what would repeat an n-gram, then what would end a bad word; then minP,
// topK and topP filter. Penalties, n-grams and bad words look at the prompt and at what was generated. topPDecay acts
// where topK is not given: each token multiplies topP by it, down to topPMin, and topPResetIds sets it back.
// beamSearchDiversityRate, lengthPenalty and earlyStopping act on beams alone.
//
// Without beams numReturnSequences samples so many answers (1024 at most) to one prompt, which is computed once. The
// responses carry the request's id and a sequenceIndex; sequence i samples with seed + i; logits and log probabilities
// of the prompt come with sequence 0. An error ends all of them.
class SamplingConfig {
 public:
  explicit SamplingConfig(
      SizeType32 beamWidth = 1, std::optional<SizeType32> topK = std::nullopt,
      std::optional<FloatType> topP = std::nullopt, std::optional<FloatType> topPMin = std::nullopt,
      std::optional<TokenIdType> topPResetIds = std::nullopt, std::optional<FloatType> topPDecay = std::nullopt,
      std::optional<RandomSeedType> seed = std::nullopt, std::optional<FloatType> temperature = std::nullopt,
      std::optional<SizeType32> minTokens = std::nullopt,
      std::optional<FloatType> beamSearchDiversityRate = std::nullopt,
      std::optional<FloatType> repetitionPenalty = std::nullopt,
      std::optional<FloatType> presencePenalty = std::nullopt, std::optional<FloatType> frequencyPenalty = std::nullopt,
      std::optional<FloatType> lengthPenalty = std::nullopt, std::optional<SizeType32> earlyStopping = std::nullopt,
      std::optional<SizeType32> noRepeatNgramSize = std::nullopt,
      std::optional<SizeType32> numReturnSequences = std::nullopt, std::optional<FloatType> minP = std::nullopt,
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
  // Chorus: how many of the prompt's first tokens presencePenalty and frequencyPenalty leave out; the prompt's length
  // gives what OpenAI's API means by them. Later TensorRT-LLM has it too, in its constructor.
  std::optional<SizeType32> getPromptIgnoreLength() const { return promptIgnoreLength_; }

  void setBeamWidth(SizeType32 v);
  void setTopK(std::optional<SizeType32> v);
  void setTopP(std::optional<FloatType> v);
  void setTopPMin(std::optional<FloatType> v);
  void setTopPResetIds(std::optional<TokenIdType> v);
  void setTopPDecay(std::optional<FloatType> v);
  void setSeed(std::optional<RandomSeedType> v) { seed_ = v; }
  void setTemperature(std::optional<FloatType> v);
  void setMinTokens(std::optional<SizeType32> v);
  void setBeamSearchDiversityRate(std::optional<FloatType> v);
  void setRepetitionPenalty(std::optional<FloatType> v);
  void setPresencePenalty(std::optional<FloatType> v) { presencePenalty_ = v; }
  void setFrequencyPenalty(std::optional<FloatType> v) { frequencyPenalty_ = v; }
  void setLengthPenalty(std::optional<FloatType> v);
  void setEarlyStopping(std::optional<SizeType32> v);
  void setNoRepeatNgramSize(std::optional<SizeType32> v);
  void setNumReturnSequences(std::optional<SizeType32> v);
  void setMinP(std::optional<FloatType> v);
  void setBeamWidthArray(std::optional<std::vector<SizeType32>> v);
  void setPromptIgnoreLength(std::optional<SizeType32> v);

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
  std::optional<SizeType32> promptIgnoreLength_;
};

struct OutputConfig {
  bool returnLogProbs = false;
  bool returnContextLogits = false;
  bool returnGenerationLogits = false;
  bool excludeInputFromOutput = false;
  bool returnEncoderOutput = false;
  bool returnPerfMetrics = false;
  bool returnPromptLogProbs = false;  // Chorus: of the prompt's tokens
  SizeType32 topLogProbs = 0;         // Chorus: alternatives reported beside each log probability that is asked for
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

// Chorus: a term of a composition of adapters.
struct WeightedLora {
  IdType taskId = 0;
  FloatType weight = 1.0f;  // finite; may be negative or 0
};

class Request {
 public:
  static constexpr PriorityType kDefaultPriority = 0.5f;

  // inputTokenIds must not be empty; maxTokens > 0.
  Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming = false,
          SamplingConfig samplingConfig = SamplingConfig(), OutputConfig outputConfig = OutputConfig(),
          std::optional<SizeType32> endId = std::nullopt, std::optional<SizeType32> padId = std::nullopt,
          std::optional<std::vector<SizeType32>> positionIds = std::nullopt,
          std::optional<std::list<VecTokens>> badWords = std::nullopt,
          std::optional<std::list<VecTokens>> stopWords = std::nullopt,
          std::optional<Tensor> embeddingBias = std::nullopt);

  const VecTokens& getInputTokenIds() const { return inputTokenIds_; }
  SizeType32 getMaxTokens() const { return maxTokens_; }
  bool getStreaming() const { return streaming_; }
  const SamplingConfig& getSamplingConfig() const { return samplingConfig_; }
  const OutputConfig& getOutputConfig() const { return outputConfig_; }
  std::optional<SizeType32> getEndId() const { return endId_; }
  std::optional<SizeType32> getPadId() const { return padId_; }
  // Chorus: further end tokens beside endId (generation_config.json may list several).
  const VecTokens& getExtraEndIds() const { return extraEndIds_; }
  const std::optional<std::vector<SizeType32>>& getPositionIds() const { return positionIds_; }
  // Token sequences that are never completed; they may begin in the prompt.
  const std::optional<std::list<VecTokens>>& getBadWords() const { return badWords_; }
  // Token sequences that end the answer; they lie within it.
  const std::optional<std::list<VecTokens>>& getStopWords() const { return stopWords_; }
  // Added to every row of logits; [vocab] float32, minus infinity bans a token.
  const std::optional<Tensor>& getEmbeddingBias() const { return embeddingBias_; }
  const std::optional<LoraConfig>& getLoraConfig() const { return loraConfig_; }
  // Chorus: adapters by task id that act together, each with a weight: the sum of weight x scale x B A, which is PEFT's
  // add_weighted_adapter(combination_type="cat"). Instead of a LoraConfig; an id may stand in it twice. Empty: none.
  const std::vector<WeightedLora>& getLoraComposition() const { return loraComposition_; }
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
  void setPositionIds(std::vector<SizeType32> v) { positionIds_ = std::move(v); }
  void setBadWords(std::list<VecTokens> v) { badWords_ = std::move(v); }
  void setStopWords(std::list<VecTokens> v) { stopWords_ = std::move(v); }
  void setEmbeddingBias(Tensor v) { embeddingBias_ = std::move(v); }
  void setLoraConfig(std::optional<LoraConfig> v) { loraConfig_ = std::move(v); }
  void setLoraComposition(std::vector<WeightedLora> v);
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
  std::optional<std::vector<SizeType32>> positionIds_;
  std::optional<std::list<VecTokens>> badWords_, stopWords_;
  std::optional<Tensor> embeddingBias_;
  std::optional<LoraConfig> loraConfig_;
  std::vector<WeightedLora> loraComposition_;
  std::optional<IdType> clientId_;
  bool returnAllGeneratedTokens_ = false;
  PriorityType priority_ = kDefaultPriority;
  std::optional<std::chrono::milliseconds> allottedTimeMs_;
};

}  // namespace chorus::executor
