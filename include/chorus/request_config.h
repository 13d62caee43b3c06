// Parts of a Request other than its sampling: outputs, the adapter, and TensorRT-LLM's optional features. Types marked
// "refused" can be built and read, but a request that uses one is answered by an error that names it.
#pragma once

#include <cstdint>
#include <list>
#include <tuple>
#include <utility>

#include "chorus/tensor.h"
#include "chorus/types.h"

namespace chorus::executor {

// The name of a network tensor to return; refused.
class AdditionalModelOutput {
 public:
  explicit AdditionalModelOutput(std::string nameIn, bool gatherContextIn = false)
      : name(std::move(nameIn)), gatherContext(gatherContextIn) {}
  bool operator==(const AdditionalModelOutput&) const = default;
  std::string name;
  bool gatherContext = false;
};

class OutputConfig {
 public:
  using AdditionalModelOutput = executor::AdditionalModelOutput;
  explicit OutputConfig(bool inReturnLogProbs = false, bool inReturnContextLogits = false,
                        bool inReturnGenerationLogits = false, bool inExcludeInputFromOutput = false,
                        bool inReturnEncoderOutput = false, bool inReturnPerfMetrics = false,
                        std::optional<std::vector<AdditionalModelOutput>> inAdditionalModelOutputs = std::nullopt)
      : returnLogProbs(inReturnLogProbs),
        returnContextLogits(inReturnContextLogits),
        returnGenerationLogits(inReturnGenerationLogits),
        excludeInputFromOutput(inExcludeInputFromOutput),
        returnEncoderOutput(inReturnEncoderOutput),
        returnPerfMetrics(inReturnPerfMetrics),
        additionalModelOutputs(std::move(inAdditionalModelOutputs)) {}

  bool returnLogProbs;
  bool returnContextLogits;
  bool returnGenerationLogits;
  bool excludeInputFromOutput;
  bool returnEncoderOutput;  // refused
  bool returnPerfMetrics;
  std::optional<std::vector<AdditionalModelOutput>> additionalModelOutputs;  // refused unless empty
  bool returnPromptLogProbs = false;  // Chorus: log probabilities of the prompt's tokens
  SizeType32 topLogProbs = 0;  // Chorus: number of likeliest tokens reported beside each requested log probability
};

// An adapter by task id. weights and config are both set or both unset. If set, the adapter is cached under the id;
// otherwise it must be in the cache or be registered with Executor::registerAdapter.
//
// weights: [rows, width] or [1, rows, width]. A row is A [rank, in] and B [out, rank], with DoRA also the magnitudes
//   [out], flat and padded on the right.
// config: int32 [rows, 3 or 4] or [1, rows, 3 or 4]. A row is module id, layer id, rank and, optionally, is_dora.
// Layer ids are global, and the weights are whole, over all tensor- and pipeline-parallel ranks of the engine.
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

// Speculative decoding of given draft tokens; refused.
class ExternalDraftTokensConfig {
 public:
  // Throws std::invalid_argument unless there are tokens, logits have 2 dimensions with one row per token, and the
  // threshold is in (0, 1].
  explicit ExternalDraftTokensConfig(VecTokens tokens, std::optional<Tensor> logits = std::nullopt,
                                     std::optional<FloatType> acceptanceThreshold = std::nullopt,
                                     std::optional<bool> fastLogits = std::nullopt);
  const VecTokens& getTokens() const { return tokens_; }
  const std::optional<Tensor>& getLogits() const { return logits_; }
  std::optional<FloatType> getAcceptanceThreshold() const { return acceptanceThreshold_; }
  std::optional<bool> getFastLogits() const { return fastLogits_; }

 private:
  VecTokens tokens_;
  std::optional<Tensor> logits_;
  std::optional<FloatType> acceptanceThreshold_;
  std::optional<bool> fastLogits_;
};

// Prompt tuning with virtual tokens; refused.
class PromptTuningConfig {
 public:
  // Throws std::invalid_argument unless the table has 2 dimensions.
  explicit PromptTuningConfig(Tensor embeddingTable, std::optional<VecTokenExtraIds> inputTokenExtraIds = std::nullopt);
  const Tensor& getEmbeddingTable() const { return embeddingTable_; }
  const std::optional<VecTokenExtraIds>& getInputTokenExtraIds() const { return inputTokenExtraIds_; }

 private:
  Tensor embeddingTable_;
  std::optional<VecTokenExtraIds> inputTokenExtraIds_;
};

// Rotary positions for multimodal prompts; refused.
class MropeConfig {
 public:
  explicit MropeConfig(Tensor mropeRotaryCosSin, SizeType32 mropePositionDeltas)
      : rotaryCosSin_(std::move(mropeRotaryCosSin)), positionDeltas_(mropePositionDeltas) {}
  const Tensor& getMRopeRotaryCosSin() const { return rotaryCosSin_; }
  SizeType32 getMRopePositionDeltas() const { return positionDeltas_; }

 private:
  Tensor rotaryCosSin_;
  SizeType32 positionDeltas_;
};

// Lookahead decoding; refused.
struct LookaheadDecodingConfig {
  static constexpr SizeType32 kDefaultLookaheadDecodingWindow = 4;
  static constexpr SizeType32 kDefaultLookaheadDecodingNgram = 3;
  static constexpr SizeType32 kDefaultLookaheadDecodingVerificationSet = 4;

  // Throws std::invalid_argument unless isLegal().
  LookaheadDecodingConfig(SizeType32 windowSize, SizeType32 ngramSize, SizeType32 verificationSetSize);
  explicit LookaheadDecodingConfig()
      : LookaheadDecodingConfig(kDefaultLookaheadDecodingWindow, kDefaultLookaheadDecodingNgram,
                                kDefaultLookaheadDecodingVerificationSet) {}
  bool operator==(const LookaheadDecodingConfig&) const = default;
  std::tuple<const SizeType32, const SizeType32, const SizeType32> get() const {
    return {windowSize_, ngramSize_, verificationSetSize_};
  }
  SizeType32 getWindowSize() const { return windowSize_; }
  SizeType32 getNgramSize() const { return ngramSize_; }
  SizeType32 getVerificationSetSize() const { return verificationSetSize_; }
  // Returns the limits of one step: (most decoded tokens, longest path, drafted tokens, longest drafted path).
  std::tuple<SizeType32, SizeType32, SizeType32, SizeType32> calculateSpeculativeResource() const {
    return calculateSpeculativeResourceTuple(windowSize_, ngramSize_, verificationSetSize_);
  }
  static std::tuple<SizeType32, SizeType32, SizeType32, SizeType32> calculateSpeculativeResourceTuple(
      SizeType32 windowSize, SizeType32 ngramSize, SizeType32 verificationSetSize);
  // Whether the resources of `that` suffice for this one.
  bool isLE(const LookaheadDecodingConfig& that) const {
    return windowSize_ <= that.windowSize_ && ngramSize_ <= that.ngramSize_ &&
           verificationSetSize_ <= that.verificationSetSize_;
  }
  static bool isLegal(SizeType32 windowSize, SizeType32 ngramSize, SizeType32 verificationSetSize) noexcept;

 private:
  SizeType32 windowSize_;
  SizeType32 ngramSize_;
  SizeType32 verificationSetSize_;
};

// EAGLE decoding; refused.
struct EagleConfig {
  // Throws std::invalid_argument unless the threshold is in [0, 1].
  explicit EagleConfig(std::optional<EagleChoices> eagleChoices = std::nullopt, bool greedySampling = true,
                       std::optional<float> posteriorThreshold = std::nullopt, bool useDynamicTree = false,
                       std::optional<SizeType32> dynamicTreeMaxTopK = std::nullopt);
  bool operator==(const EagleConfig&) const = default;
  const std::optional<EagleChoices>& getEagleChoices() const { return eagleChoices_; }
  std::optional<float> getPosteriorThreshold() const { return posteriorThreshold_; }
  bool isGreedySampling() const { return greedySampling_; }
  bool useDynamicTree() const { return useDynamicTree_; }
  std::optional<SizeType32> getDynamicTreeMaxTopK() const { return dynamicTreeMaxTopK_; }

 private:
  std::optional<EagleChoices> eagleChoices_;
  bool greedySampling_;
  std::optional<float> posteriorThreshold_;
  bool useDynamicTree_;
  std::optional<SizeType32> dynamicTreeMaxTopK_;
};

// The result of a context-only executor; refused.
class ContextPhaseParams {
 public:
  using RequestIdType = std::uint64_t;
  ContextPhaseParams(VecTokens firstGenTokens, RequestIdType reqId, std::optional<VecTokens> draftTokens = std::nullopt)
      : firstGenTokens_(std::move(firstGenTokens)), reqId_(reqId), draftTokens_(std::move(draftTokens)) {}
  ContextPhaseParams(VecTokens firstGenTokens, RequestIdType reqId, std::vector<char> serializedState,
                     std::optional<VecTokens> draftTokens = std::nullopt)
      : firstGenTokens_(std::move(firstGenTokens)),
        reqId_(reqId),
        draftTokens_(std::move(draftTokens)),
        serializedState_(std::move(serializedState)) {}
  bool operator==(const ContextPhaseParams&) const = default;
  const VecTokens& getFirstGenTokens() const& noexcept { return firstGenTokens_; }
  VecTokens popFirstGenTokens() && noexcept { return std::move(firstGenTokens_); }
  const std::optional<VecTokens>& getDraftTokens() const& noexcept { return draftTokens_; }
  RequestIdType getReqId() const noexcept { return reqId_; }
  std::vector<char> getSerializedState() const { return serializedState_; }

 private:
  VecTokens firstGenTokens_;
  RequestIdType reqId_ = 0;
  std::optional<VecTokens> draftTokens_;
  std::vector<char> serializedState_;
};

// Constrained output; refused.
class GuidedDecodingParams {
 public:
  enum class GuideType { kJSON = 0, kJSON_SCHEMA = 1, kREGEX = 2, kEBNF_GRAMMAR = 3, kSTRUCTURAL_TAG = 4 };
  // Throws std::invalid_argument unless there is a guide, or the type is kJSON.
  explicit GuidedDecodingParams(GuideType guideType, std::optional<std::string> guide = std::nullopt);
  bool operator==(const GuidedDecodingParams&) const = default;
  GuideType getGuideType() const { return guideType_; }
  const std::optional<std::string>& getGuide() const { return guide_; }

 private:
  GuideType guideType_;
  std::optional<std::string> guide_;
};

struct RetentionPriorityAndDuration {
  RetentionPriorityAndDuration(std::optional<RetentionPriority> retentionPriorityIn,
                               std::optional<std::chrono::milliseconds> durationMsIn)
      : retentionPriority(retentionPriorityIn), durationMs(durationMsIn) {}
  std::optional<RetentionPriority> retentionPriority;
  std::optional<std::chrono::milliseconds> durationMs;
};

// Retention priorities of KV blocks; refused unless every block has the default priority.
class KvCacheRetentionConfig {
 public:
  static constexpr RetentionPriority kMinRetentionPriority = 0;
  static constexpr RetentionPriority kMaxRetentionPriority = 100;
  static constexpr RetentionPriority kDefaultRetentionPriority = 35;

  struct TokenRangeRetentionConfig {
    // The range is [tokenStart, tokenEnd); without tokenEnd, it ends with the sequence. Throws std::invalid_argument
    // unless the priority is in [0, 100].
    explicit TokenRangeRetentionConfig(SizeType32 tokenStartIn, std::optional<SizeType32> tokenEndIn = std::nullopt,
                                       RetentionPriority priorityIn = kDefaultRetentionPriority,
                                       std::optional<std::chrono::milliseconds> durationMsIn = std::nullopt);
    bool operator==(const TokenRangeRetentionConfig&) const = default;
    SizeType32 tokenStart;
    std::optional<SizeType32> tokenEnd;
    RetentionPriority priority;
    std::optional<std::chrono::milliseconds> durationMs;
  };

  explicit KvCacheRetentionConfig() : KvCacheRetentionConfig(std::vector<TokenRangeRetentionConfig>()) {}
  // Throws std::invalid_argument if ranges overlap or a priority is not in [0, 100].
  explicit KvCacheRetentionConfig(const std::vector<TokenRangeRetentionConfig>& tokenRangeRetentionPriorities,
                                  RetentionPriority decodeRetentionPriority = kDefaultRetentionPriority,
                                  std::optional<std::chrono::milliseconds> decodeDurationMs = std::nullopt);
  const std::vector<TokenRangeRetentionConfig>& getTokenRangeRetentionConfigs() const { return ranges_; }
  RetentionPriority getDecodeRetentionPriority() const { return decodePriority_; }
  std::optional<std::chrono::milliseconds> getDecodeDurationMs() const { return decodeDurationMs_; }
  // Returns one entry per block of a sequence of seqLen tokens: the priority and duration of the range that holds the
  // block's first token.
  std::vector<RetentionPriorityAndDuration> getPerBlockRetentionPriorityDuration(SizeType32 blockSize,
                                                                                 SizeType32 seqLen) const;
  bool operator==(const KvCacheRetentionConfig&) const = default;

 private:
  std::vector<TokenRangeRetentionConfig> ranges_;
  RetentionPriority decodePriority_;
  std::optional<std::chrono::milliseconds> decodeDurationMs_;
};

}  // namespace chorus::executor
