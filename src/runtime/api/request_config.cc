#include "chorus/request_config.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/api/argument_check.h"

namespace chorus::executor {
namespace {

void checkRetentionPriority(RetentionPriority priority) {
  if (priority >= KvCacheRetentionConfig::kMinRetentionPriority &&
      priority <= KvCacheRetentionConfig::kMaxRetentionPriority)
    return;
  throw std::invalid_argument(fmt::format("Invalid priority value. Must be between {} and {}",
                                          KvCacheRetentionConfig::kMinRetentionPriority,
                                          KvCacheRetentionConfig::kMaxRetentionPriority));
}

}  // namespace

LoraConfig::LoraConfig(IdType taskId, std::optional<Tensor> weights, std::optional<Tensor> config)
    : taskId_(taskId), weights_(std::move(weights)), config_(std::move(config)) {
  // Accepts [rows, columns], as in the Executor API, and [1, rows, columns], as in the files of lora-convert.
  const auto isTable = [](const Tensor& tensor) {
    const auto shape = tensor.getShape();
    return shape.size() == 2 || (shape.size() == 3 && shape[0] == 1);
  };
  const auto rows = [](const Tensor& tensor) { return tensor.getShape()[tensor.getShape().size() - 2]; };
  if (config_) {
    if (!isTable(*config_)) throw std::invalid_argument("Expected config tensor to have 2 dimensions");
    if (config_->getDataType() != DataType::kINT32) {
      throw std::invalid_argument("Expected lora config tensor to have type kINT32");
    }
    if (!weights_) {
      throw std::invalid_argument("Request for LoRA inference must have both lora_weights and lora_keys");
    }
  }
  if (weights_) {
    if (!config_)
      throw std::invalid_argument("Request for LoRA inference with lora weights must also have lora config");
    if (!isTable(*weights_)) throw std::invalid_argument("Expected weights tensor to have 2 dimensions");
    if (rows(*config_) != rows(*weights_)) {
      throw std::invalid_argument("Expected dim 0 of lora weights and lora config to have the same size");
    }
  }
}

ExternalDraftTokensConfig::ExternalDraftTokensConfig(VecTokens tokens, std::optional<Tensor> logits,
                                                     std::optional<FloatType> acceptanceThreshold,
                                                     std::optional<bool> fastLogits)
    : tokens_(std::move(tokens)),
      logits_(std::move(logits)),
      acceptanceThreshold_(acceptanceThreshold),
      fastLogits_(fastLogits) {
  check(!tokens_.empty(), "!mTokens.empty()", "tokens.size()", tokens_.size());
  if (logits_) {
    const Shape shape = logits_->getShape();
    check(shape.size() == 2, "mLogits.value().getShape().size() == 2", "dimensions", shape.size());
    check(shape[0] == static_cast<std::int64_t>(tokens_.size()),
          "mLogits.value().getShape()[0] == static_cast<SizeType32>(mTokens.size())", "rows", shape[0]);
  }
  if (acceptanceThreshold) {
    check(*acceptanceThreshold > 0.f, "mAcceptanceThreshold.value() > 0.f", "acceptanceThreshold",
          *acceptanceThreshold);
    check(*acceptanceThreshold <= 1.f, "mAcceptanceThreshold.value() <= 1.f", "acceptanceThreshold",
          *acceptanceThreshold);
  }
}

PromptTuningConfig::PromptTuningConfig(Tensor embeddingTable, std::optional<VecTokenExtraIds> inputTokenExtraIds)
    : embeddingTable_(std::move(embeddingTable)), inputTokenExtraIds_(std::move(inputTokenExtraIds)) {
  if (embeddingTable_.getShape().size() != 2) {
    throw std::invalid_argument("Expected prompt embedding table to have shape [taskVocabSize, hiddenSize]");
  }
}

LookaheadDecodingConfig::LookaheadDecodingConfig(SizeType32 windowSize, SizeType32 ngramSize,
                                                 SizeType32 verificationSetSize)
    : windowSize_(windowSize), ngramSize_(ngramSize), verificationSetSize_(verificationSetSize) {
  if (isLegal(windowSize, ngramSize, verificationSetSize)) return;
  throw std::invalid_argument(fmt::format("Invalid lookahead decoding config: window {}, ngram {}, verification set {}",
                                          windowSize, ngramSize, verificationSetSize));
}

std::tuple<SizeType32, SizeType32, SizeType32, SizeType32> LookaheadDecodingConfig::calculateSpeculativeResourceTuple(
    SizeType32 windowSize, SizeType32 ngramSize, SizeType32 verificationSetSize) {
  const SizeType32 drafted =
      (ngramSize > 1 ? ngramSize - 2 : 0) + (windowSize - 1 + verificationSetSize) * (ngramSize - 1);
  return {drafted + 1, ngramSize, drafted, ngramSize - 1};
}

bool LookaheadDecodingConfig::isLegal(SizeType32 windowSize, SizeType32 ngramSize,
                                      SizeType32 verificationSetSize) noexcept {
  if (windowSize < 1 || ngramSize < 1 || verificationSetSize < 0) return false;
  return ngramSize > 1 || (windowSize == 1 && verificationSetSize == 0);
}

EagleConfig::EagleConfig(std::optional<EagleChoices> eagleChoices, bool greedySampling,
                         std::optional<float> posteriorThreshold, bool useDynamicTree,
                         std::optional<SizeType32> dynamicTreeMaxTopK)
    : eagleChoices_(std::move(eagleChoices)),
      greedySampling_(greedySampling),
      posteriorThreshold_(posteriorThreshold),
      useDynamicTree_(useDynamicTree),
      dynamicTreeMaxTopK_(dynamicTreeMaxTopK) {
  if (posteriorThreshold) {
    check(*posteriorThreshold >= 0.f && *posteriorThreshold <= 1.f, "0 <= posteriorThreshold <= 1",
          "posteriorThreshold", *posteriorThreshold);
  }
}

GuidedDecodingParams::GuidedDecodingParams(GuideType guideType, std::optional<std::string> guide)
    : guideType_(guideType), guide_(std::move(guide)) {
  if (guideType_ == GuideType::kJSON || guide_) return;
  throw std::invalid_argument("The guide string must be provided unless using GuideType::kJSON.");
}

KvCacheRetentionConfig::TokenRangeRetentionConfig::TokenRangeRetentionConfig(
    SizeType32 tokenStartIn, std::optional<SizeType32> tokenEndIn, RetentionPriority priorityIn,
    std::optional<std::chrono::milliseconds> durationMsIn)
    : tokenStart(tokenStartIn), tokenEnd(tokenEndIn), priority(priorityIn), durationMs(durationMsIn) {
  checkRetentionPriority(priority);
}

KvCacheRetentionConfig::KvCacheRetentionConfig(
    const std::vector<TokenRangeRetentionConfig>& tokenRangeRetentionPriorities,
    RetentionPriority decodeRetentionPriority, std::optional<std::chrono::milliseconds> decodeDurationMs)
    : ranges_(tokenRangeRetentionPriorities),
      decodePriority_(decodeRetentionPriority),
      decodeDurationMs_(decodeDurationMs) {
  checkRetentionPriority(decodeRetentionPriority);
  std::sort(ranges_.begin(), ranges_.end(), [](const auto& a, const auto& b) { return a.tokenStart < b.tokenStart; });
  for (std::size_t i = 0; i + 1 < ranges_.size(); ++i) {
    if (ranges_[i].tokenEnd && *ranges_[i].tokenEnd <= ranges_[i + 1].tokenStart) continue;
    throw std::invalid_argument("Received overlapping priority ranges in the retention config: the range from token " +
                                std::to_string(ranges_[i].tokenStart) + " overlaps the next");
  }
}

std::vector<RetentionPriorityAndDuration> KvCacheRetentionConfig::getPerBlockRetentionPriorityDuration(
    SizeType32 blockSize, SizeType32 seqLen) const {
  check(blockSize > 0, "blockSize > 0", "blockSize", blockSize);
  std::vector<RetentionPriorityAndDuration> blocks;
  std::size_t range = 0;
  for (SizeType32 token = 0; token < seqLen; token += blockSize) {
    while (range < ranges_.size() && ranges_[range].tokenEnd && token >= *ranges_[range].tokenEnd) ++range;
    const bool within = range < ranges_.size() && token >= ranges_[range].tokenStart;
    blocks.emplace_back(within ? std::optional(ranges_[range].priority) : std::nullopt,
                        within ? ranges_[range].durationMs : std::nullopt);
    if (token > seqLen - blockSize) break;
  }
  return blocks;
}

}  // namespace chorus::executor
