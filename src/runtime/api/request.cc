#include "chorus/request.h"

#include <stdexcept>

#include "runtime/api/argument_check.h"
#include "runtime/decoding/bad_words.h"

namespace chorus::executor {
namespace {

void checkPriority(PriorityType priority) {
  check(priority >= 0.f && priority <= 1.f, "0 <= priority <= 1", "priority", priority);
}

std::shared_ptr<const BadWordTables> tablesOf(std::optional<std::list<VecTokens>> words) {
  return words ? std::make_shared<const BadWordTables>(std::move(*words)) : nullptr;
}

}  // namespace

Request::Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming, SamplingConfig samplingConfig,
                 OutputConfig outputConfig, std::optional<SizeType32> endId, std::optional<SizeType32> padId,
                 std::optional<std::vector<SizeType32>> positionIds, std::optional<std::list<VecTokens>> badWords,
                 std::optional<std::list<VecTokens>> stopWords, std::optional<Tensor> embeddingBias,
                 std::optional<ExternalDraftTokensConfig> externalDraftTokensConfig,
                 std::optional<PromptTuningConfig> pTuningConfig, std::optional<MropeConfig> mRopeConfig,
                 std::optional<LoraConfig> loraConfig, std::optional<LookaheadDecodingConfig> lookaheadConfig,
                 std::optional<KvCacheRetentionConfig> kvCacheRetentionConfig,
                 std::optional<std::string> logitsPostProcessorName,
                 std::optional<LogitsPostProcessor> logitsPostProcessor, std::optional<VecTokens> encoderInputTokenIds,
                 std::optional<IdType> clientId, bool returnAllGeneratedTokens, PriorityType priority, RequestType type,
                 std::optional<ContextPhaseParams> contextPhaseParams, std::optional<Tensor> encoderInputFeatures,
                 std::optional<SizeType32> encoderOutputLength, std::optional<Tensor> crossAttentionMask,
                 SizeType32 numReturnSequences, std::optional<EagleConfig> eagleConfig,
                 std::optional<Tensor> skipCrossAttnBlocks, std::optional<GuidedDecodingParams> guidedDecodingParams,
                 std::optional<SizeType32> languageAdapterUid, std::optional<MillisecondsType> allottedTimeMs,
                 std::optional<CacheSaltIDType> cacheSaltID)
    : inputTokenIds_(std::move(inputTokenIds)),
      maxTokens_(maxTokens),
      streaming_(streaming),
      samplingConfig_(std::move(samplingConfig)),
      outputConfig_(std::move(outputConfig)),
      endId_(endId),
      padId_(padId),
      positionIds_(std::move(positionIds)),
      badWords_(tablesOf(std::move(badWords))),
      stopWords_(std::move(stopWords)),
      embeddingBias_(std::move(embeddingBias)),
      externalDraftTokens_(std::move(externalDraftTokensConfig)),
      pTuningConfig_(std::move(pTuningConfig)),
      mRopeConfig_(std::move(mRopeConfig)),
      loraConfig_(std::move(loraConfig)),
      lookaheadConfig_(lookaheadConfig),
      kvCacheRetentionConfig_(std::move(kvCacheRetentionConfig)),
      logitsPostProcessorName_(std::move(logitsPostProcessorName)),
      logitsPostProcessor_(std::move(logitsPostProcessor)),
      encoderInputTokenIds_(std::move(encoderInputTokenIds)),
      clientId_(clientId),
      returnAllGeneratedTokens_(returnAllGeneratedTokens),
      priority_(priority),
      type_(type),
      contextPhaseParams_(std::move(contextPhaseParams)),
      encoderInputFeatures_(std::move(encoderInputFeatures)),
      encoderOutputLength_(encoderOutputLength),
      crossAttentionMask_(std::move(crossAttentionMask)),
      eagleConfig_(std::move(eagleConfig)),
      skipCrossAttnBlocks_(std::move(skipCrossAttnBlocks)),
      guidedDecodingParams_(std::move(guidedDecodingParams)),
      languageAdapterUid_(languageAdapterUid),
      allottedTimeMs_(allottedTimeMs),
      cacheSaltID_(cacheSaltID) {
  if (inputTokenIds_.empty()) throw std::invalid_argument("Assertion failed: !inputTokenIds.empty()");
  check(maxTokens > 0, "maxTokens > 0", "maxTokens", maxTokens);
  checkPriority(priority);
  check(numReturnSequences > 0, "numReturnSequences > 0", "numReturnSequences", numReturnSequences);
  if (numReturnSequences > 1 && !samplingConfig_.getNumReturnSequences())
    samplingConfig_.setNumReturnSequences(numReturnSequences);
}

std::optional<std::vector<std::string>> Request::getAdditionalOutputNames() const {
  if (!outputConfig_.additionalModelOutputs) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& output : *outputConfig_.additionalModelOutputs) names.push_back(output.name);
  return names;
}

const std::optional<std::list<VecTokens>>& Request::getBadWords() const {
  static const std::optional<std::list<VecTokens>> kNone;
  return badWords_ != nullptr ? badWords_->words() : kNone;
}

void Request::setBadWords(std::list<VecTokens> v) { badWords_ = tablesOf(std::move(v)); }

void Request::setFairShare(std::optional<FairShare> v) {
  if (v) check(v->weight >= 1 && v->weight <= 1000, "1 <= weight <= 1000", "weight", v->weight);
  fairShare_ = v;
}

void Request::setPriority(PriorityType v) {
  checkPriority(v);
  priority_ = v;
}

void Request::setLoraComposition(std::vector<WeightedLora> v) {
  for (const WeightedLora& term : v) check(std::isfinite(term.weight), "std::isfinite(weight)", "weight", term.weight);
  loraComposition_ = std::move(v);
}

}  // namespace chorus::executor
