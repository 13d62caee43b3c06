// A request to the Executor. Constructors and setters check their arguments and throw std::invalid_argument with
// TensorRT-LLM's wording.
#pragma once

#include <memory>

#include "chorus/request_config.h"
#include "chorus/sampling_config.h"

namespace chorus {
class BadWordTables;  // runtime/decoding/bad_words.h
}

namespace chorus::executor {

// Chorus: whose share of the server a request takes, with ExecutorConfig::getWeightedFairness().
struct FairShare {
  IdType group = 0;       // requests of an equal group take one share together
  SizeType32 weight = 1;  // size of the share, relative to those of other groups: 1 to 1000
};

// Chorus: one term of a composition of adapters.
struct WeightedLora {
  IdType taskId = 0;
  FloatType weight = 1.0f;  // finite; may be negative or 0
};

// Chorus: a number that is added to a token's logits.
struct TokenBias {
  SizeType32 token = 0;
  float value = 0;  // minus infinity bans the token
};

class Request {
 public:
  static constexpr PriorityType kDefaultPriority = 0.5f;
  // A request whose logitsPostProcessorName has this value uses the batched function of LogitsPostProcessorConfig.
  static constexpr auto kBatchedPostProcessorName = "batched";
  static constexpr auto kDynamicPostProcessorNamePrefix = "dynamic";

  // inputTokenIds must not be empty; maxTokens > 0; priority in [0, 1]. A request that uses a feature which this build
  // lacks (position ids, encoder inputs, speculative or guided decoding, ...) is answered by an error that names the
  // field.
  Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming = false,
          SamplingConfig samplingConfig = SamplingConfig(), OutputConfig outputConfig = OutputConfig(),
          std::optional<SizeType32> endId = std::nullopt, std::optional<SizeType32> padId = std::nullopt,
          std::optional<std::vector<SizeType32>> positionIds = std::nullopt,
          std::optional<std::list<VecTokens>> badWords = std::nullopt,
          std::optional<std::list<VecTokens>> stopWords = std::nullopt,
          std::optional<Tensor> embeddingBias = std::nullopt,
          std::optional<ExternalDraftTokensConfig> externalDraftTokensConfig = std::nullopt,
          std::optional<PromptTuningConfig> pTuningConfig = std::nullopt,
          std::optional<MropeConfig> mRopeConfig = std::nullopt, std::optional<LoraConfig> loraConfig = std::nullopt,
          std::optional<LookaheadDecodingConfig> lookaheadConfig = std::nullopt,
          std::optional<KvCacheRetentionConfig> kvCacheRetentionConfig = std::nullopt,
          std::optional<std::string> logitsPostProcessorName = std::nullopt,
          std::optional<LogitsPostProcessor> logitsPostProcessor = std::nullopt,
          std::optional<VecTokens> encoderInputTokenIds = std::nullopt, std::optional<IdType> clientId = std::nullopt,
          bool returnAllGeneratedTokens = false, PriorityType priority = kDefaultPriority,
          RequestType type = RequestType::REQUEST_TYPE_CONTEXT_AND_GENERATION,
          std::optional<ContextPhaseParams> contextPhaseParams = std::nullopt,
          std::optional<Tensor> encoderInputFeatures = std::nullopt,
          std::optional<SizeType32> encoderOutputLength = std::nullopt,
          std::optional<Tensor> crossAttentionMask = std::nullopt, SizeType32 numReturnSequences = 1,
          std::optional<EagleConfig> eagleConfig = std::nullopt,
          std::optional<Tensor> skipCrossAttnBlocks = std::nullopt,
          std::optional<GuidedDecodingParams> guidedDecodingParams = std::nullopt,
          std::optional<SizeType32> languageAdapterUid = std::nullopt,
          std::optional<MillisecondsType> allottedTimeMs = std::nullopt,
          std::optional<CacheSaltIDType> cacheSaltID = std::nullopt);

  const VecTokens& getInputTokenIds() const { return inputTokenIds_; }
  SizeType32 getMaxTokens() const { return maxTokens_; }
  SizeType32 getMaxNewTokens() const { return maxTokens_; }
  bool getStreaming() const { return streaming_; }
  const SamplingConfig& getSamplingConfig() const { return samplingConfig_; }
  const OutputConfig& getOutputConfig() const { return outputConfig_; }
  std::optional<SizeType32> getEndId() const { return endId_; }
  std::optional<SizeType32> getPadId() const { return padId_; }
  // Chorus: more end tokens in addition to endId (generation_config.json may list several).
  const VecTokens& getExtraEndIds() const { return extraEndIds_; }
  const std::optional<std::vector<SizeType32>>& getPositionIds() const { return positionIds_; }
  // Token sequences that the answer never completes; they may begin in the prompt.
  const std::optional<std::list<VecTokens>>& getBadWords() const;
  // Chorus: the bad words with what the executor looks up in them; null: none. Requests that are given the same tables
  // share their memory, and so do copies of a request.
  const std::shared_ptr<const BadWordTables>& getBadWordTables() const { return badWords_; }
  // Token sequences that end the answer; they are matched only within the answer.
  const std::optional<std::list<VecTokens>>& getStopWords() const { return stopWords_; }
  // Added to every row of logits: [vocab] float32. Minus infinity bans a token.
  const std::optional<Tensor>& getEmbeddingBias() const { return embeddingBias_; }
  // Chorus: added to the logits of single tokens, in addition to an embeddingBias; null: none. Each token occurs once.
  // Requests may share it, and so do copies of a request.
  const std::shared_ptr<const std::vector<TokenBias>>& getTokenBias() const { return tokenBias_; }
  const std::optional<ExternalDraftTokensConfig>& getExternalDraftTokensConfig() const { return externalDraftTokens_; }
  const std::optional<PromptTuningConfig>& getPromptTuningConfig() const { return pTuningConfig_; }
  const std::optional<MropeConfig>& getMropeConfig() const { return mRopeConfig_; }
  const std::optional<LoraConfig>& getLoraConfig() const { return loraConfig_; }
  // Chorus: a weighted composition of adapters by task id, instead of a LoraConfig: the sum over terms of weight x
  // scale x B A, as PEFT's add_weighted_adapter(combination_type="cat") makes it. At most 64 terms; an id may occur
  // more than once. Empty: none.
  const std::vector<WeightedLora>& getLoraComposition() const { return loraComposition_; }
  const std::optional<LookaheadDecodingConfig>& getLookaheadConfig() const { return lookaheadConfig_; }
  const std::optional<KvCacheRetentionConfig>& getKvCacheRetentionConfig() const { return kvCacheRetentionConfig_; }
  // A name in LogitsPostProcessorConfig, or kBatchedPostProcessorName. A request sets the name or the function, not
  // both.
  const std::optional<std::string>& getLogitsPostProcessorName() const { return logitsPostProcessorName_; }
  const std::optional<LogitsPostProcessor>& getLogitsPostProcessor() const { return logitsPostProcessor_; }
  const std::optional<VecTokens>& getEncoderInputTokenIds() const { return encoderInputTokenIds_; }
  // Returned with every response. Clients share slots, tokens of a step, the queue and the cache evenly; all requests
  // without an id count as one client. KvCacheConfig::getReuseScope says whether clients share KV blocks.
  std::optional<IdType> getClientId() const { return clientId_; }
  // In streaming, each response then has all tokens so far.
  bool getReturnAllGeneratedTokens() const { return returnAllGeneratedTokens_; }
  // Requests of higher priority start first.
  PriorityType getPriority() const { return priority_; }
  RequestType getRequestType() const { return type_; }
  const std::optional<ContextPhaseParams>& getContextPhaseParams() const { return contextPhaseParams_; }
  const std::optional<Tensor>& getEncoderInputFeatures() const { return encoderInputFeatures_; }
  std::optional<SizeType32> getEncoderOutputLength() const { return encoderOutputLength_; }
  const std::optional<Tensor>& getCrossAttentionMask() const { return crossAttentionMask_; }
  // An older name of SamplingConfig::getNumReturnSequences.
  SizeType32 getNumReturnSequences() const { return samplingConfig_.getNumReturnSequences().value_or(1); }
  const std::optional<EagleConfig>& getEagleConfig() const { return eagleConfig_; }
  const std::optional<Tensor>& getSkipCrossAttnBlocks() const { return skipCrossAttnBlocks_; }
  const std::optional<GuidedDecodingParams>& getGuidedDecodingParams() const { return guidedDecodingParams_; }
  std::optional<SizeType32> getLanguageAdapterUid() const { return languageAdapterUid_; }
  // Time limit: the request ends as kTIMED_OUT in the step in which it passes, with the tokens that it has by then.
  std::optional<MillisecondsType> getAllottedTimeMs() const { return allottedTimeMs_; }
  // Chorus: time limit for waiting: the request ends as kTIMED_OUT, without tokens, if none of its sequences has
  // started by then.
  std::optional<MillisecondsType> getQueueTimeMs() const { return queueTimeMs_; }
  // Chorus: default: the client id is the group, and the weight is 1.
  const std::optional<FairShare>& getFairShare() const { return fairShare_; }
  // A request shares KV blocks only with requests of an equal id; those without an id share among themselves.
  std::optional<CacheSaltIDType> getCacheSaltID() const { return cacheSaltID_; }
  std::optional<std::vector<std::string>> getAdditionalOutputNames() const;

  void setStreaming(bool v) { streaming_ = v; }
  void setSamplingConfig(const SamplingConfig& v) { samplingConfig_ = v; }
  void setOutputConfig(const OutputConfig& v) { outputConfig_ = v; }
  void setEndId(std::optional<SizeType32> v) { endId_ = v; }
  void setPadId(std::optional<SizeType32> v) { padId_ = v; }
  void setExtraEndIds(VecTokens v) { extraEndIds_ = std::move(v); }
  void setPositionIds(std::vector<SizeType32> v) { positionIds_ = std::move(v); }
  void setBadWords(std::list<VecTokens> v);
  void setBadWordTables(std::shared_ptr<const BadWordTables> v) { badWords_ = std::move(v); }
  void setStopWords(std::list<VecTokens> v) { stopWords_ = std::move(v); }
  void setEmbeddingBias(Tensor v) { embeddingBias_ = std::move(v); }
  void setTokenBias(std::shared_ptr<const std::vector<TokenBias>> v) { tokenBias_ = std::move(v); }
  void setExternalDraftTokensConfig(ExternalDraftTokensConfig v) { externalDraftTokens_ = std::move(v); }
  void setPromptTuningConfig(PromptTuningConfig v) { pTuningConfig_ = std::move(v); }
  void setMropeConfig(MropeConfig v) { mRopeConfig_ = std::move(v); }
  void setLoraConfig(std::optional<LoraConfig> v) { loraConfig_ = std::move(v); }
  void setLoraComposition(std::vector<WeightedLora> v);
  void setLookaheadConfig(const LookaheadDecodingConfig& v) { lookaheadConfig_ = v; }
  void setKvCacheRetentionConfig(KvCacheRetentionConfig v) { kvCacheRetentionConfig_ = std::move(v); }
  void setLogitsPostProcessorName(std::string v) { logitsPostProcessorName_ = std::move(v); }
  void setLogitsPostProcessor(std::optional<LogitsPostProcessor> v) { logitsPostProcessor_ = std::move(v); }
  void setEncoderInputTokenIds(VecTokens v) { encoderInputTokenIds_ = std::move(v); }
  void setClientId(std::optional<IdType> v) { clientId_ = v; }
  void setReturnAllGeneratedTokens(bool v) { returnAllGeneratedTokens_ = v; }
  void setPriority(PriorityType v);
  void setRequestType(RequestType v) { type_ = v; }
  void setContextPhaseParams(ContextPhaseParams v) { contextPhaseParams_ = std::move(v); }
  void setEncoderInputFeatures(Tensor v) { encoderInputFeatures_ = std::move(v); }
  void setEncoderOutputLength(SizeType32 v) { encoderOutputLength_ = v; }
  void setCrossAttentionMask(Tensor v) { crossAttentionMask_ = std::move(v); }
  void setNumReturnSequences(SizeType32 v) { samplingConfig_.setNumReturnSequences(v); }
  void setEagleConfig(std::optional<EagleConfig> v) { eagleConfig_ = std::move(v); }
  void setSkipCrossAttnBlocks(Tensor v) { skipCrossAttnBlocks_ = std::move(v); }
  void setGuidedDecodingParams(GuidedDecodingParams v) { guidedDecodingParams_ = std::move(v); }
  void setLanguageAdapterUid(SizeType32 v) { languageAdapterUid_ = v; }
  void setAllottedTimeMs(std::optional<MillisecondsType> v) { allottedTimeMs_ = v; }
  void setCacheSaltID(std::optional<CacheSaltIDType> v) { cacheSaltID_ = v; }
  void setQueueTimeMs(std::optional<MillisecondsType> v) { queueTimeMs_ = v; }
  void setFairShare(std::optional<FairShare> v);

 private:
  VecTokens inputTokenIds_;
  SizeType32 maxTokens_;
  bool streaming_;
  SamplingConfig samplingConfig_;
  OutputConfig outputConfig_;
  std::optional<SizeType32> endId_, padId_;
  VecTokens extraEndIds_;
  std::optional<std::vector<SizeType32>> positionIds_;
  std::shared_ptr<const BadWordTables> badWords_;
  std::optional<std::list<VecTokens>> stopWords_;
  std::optional<Tensor> embeddingBias_;
  std::shared_ptr<const std::vector<TokenBias>> tokenBias_;
  std::optional<ExternalDraftTokensConfig> externalDraftTokens_;
  std::optional<PromptTuningConfig> pTuningConfig_;
  std::optional<MropeConfig> mRopeConfig_;
  std::optional<LoraConfig> loraConfig_;
  std::vector<WeightedLora> loraComposition_;
  std::optional<LookaheadDecodingConfig> lookaheadConfig_;
  std::optional<KvCacheRetentionConfig> kvCacheRetentionConfig_;
  std::optional<std::string> logitsPostProcessorName_;
  std::optional<LogitsPostProcessor> logitsPostProcessor_;
  std::optional<VecTokens> encoderInputTokenIds_;
  std::optional<IdType> clientId_;
  bool returnAllGeneratedTokens_;
  PriorityType priority_;
  RequestType type_;
  std::optional<ContextPhaseParams> contextPhaseParams_;
  std::optional<Tensor> encoderInputFeatures_;
  std::optional<SizeType32> encoderOutputLength_;
  std::optional<Tensor> crossAttentionMask_;
  std::optional<EagleConfig> eagleConfig_;
  std::optional<Tensor> skipCrossAttnBlocks_;
  std::optional<GuidedDecodingParams> guidedDecodingParams_;
  std::optional<SizeType32> languageAdapterUid_;
  std::optional<MillisecondsType> allottedTimeMs_;
  std::optional<CacheSaltIDType> cacheSaltID_;
  std::optional<MillisecondsType> queueTimeMs_;
  std::optional<FairShare> fairShare_;
};

}  // namespace chorus::executor
