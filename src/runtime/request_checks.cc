#include "runtime/request_checks.h"

#include "runtime/return_sequences.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace chorus {
namespace {

using executor::SamplingConfig;
using Refusal = std::optional<Error>;

template <typename... Args>
Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}

Refusal lengthRefusal(int64_t length, const RequestLimits& limits) {
  if (length > limits.longestPrompt()) {
    return invalid(
        "Prompt length ({}) exceeds maximum input length ({}). Set log level to info and check TRTGptModel "
        "logs for how maximum input length is set",
        length, limits.longestPrompt());
  }
  if (!limits.chunked_context && length > limits.max_num_tokens) {
    return invalid("The number of context tokens ({}) exceeds the limit value ({})", length, limits.max_num_tokens);
  }
  return std::nullopt;
}

Refusal endIdRefusal(const executor::Request& request, int32_t vocab_size) {
  const auto check = [&](int32_t id) -> Refusal {
    if (id >= -1 && id < vocab_size) return std::nullopt;
    return invalid("EndId ({}) is not within acceptable range [-1, {}).", id, vocab_size);
  };
  if (request.getEndId()) {
    if (auto refusal = check(*request.getEndId())) return refusal;
  }
  for (const int32_t id : request.getExtraEndIds()) {
    if (auto refusal = check(id)) return refusal;
  }
  return std::nullopt;
}

Refusal tokenRefusal(std::span<const int32_t> tokens, int32_t vocab_size, const char* of) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return invalid("Token {} at position {} of {} is not within the vocabulary [0, {})", tokens[i], i, of, vocab_size);
  }
  return std::nullopt;
}

Refusal wordsRefusal(const executor::Request& request) {
  const auto holdsEmpty = [](const std::optional<std::list<executor::VecTokens>>& words) {
    return words && std::any_of(words->begin(), words->end(), [](const auto& word) { return word.empty(); });
  };
  if (holdsEmpty(request.getStopWords())) return invalid("stopWords holds an empty word");
  if (holdsEmpty(request.getBadWords())) return invalid("badWords holds an empty word");
  return std::nullopt;
}

Refusal biasRefusal(const std::optional<executor::Tensor>& bias, int32_t vocab_size, int32_t model_vocab_size) {
  if (!bias) return std::nullopt;
  if (bias->getDataType() != executor::DataType::kFP32)
    return invalid("Embedding bias data type must be same as model logits type.");
  if (bias->getShape() != executor::Shape{vocab_size} && bias->getShape() != executor::Shape{model_vocab_size}) {
    return invalid("embeddingBias must have the shape [{}], the vocabulary's size", vocab_size);
  }
  const auto* values = static_cast<const float*>(bias->getData());
  for (size_t i = 0; i < bias->getSize(); ++i) {
    // Minus infinity is allowed: it bans the token.
    if (std::isnan(values[i]) || values[i] == HUGE_VALF)
      return invalid("embeddingBias[{}] is {}: expected a finite number or minus infinity", i, values[i]);
  }
  return std::nullopt;
}

Refusal biasRefusal(const executor::Request& request, int32_t vocab_size) {
  if (request.getTokenBias() == nullptr) return std::nullopt;
  for (const auto& [token, value] : *request.getTokenBias()) {
    if (token < 0 || token >= vocab_size) {
      return invalid("tokenBias has the token {}, which is not within the vocabulary [0, {})", token, vocab_size);
    }
    if (std::isnan(value) || value == HUGE_VALF)
      return invalid("tokenBias of {} is {}: expected a finite number or minus infinity", token, value);
  }
  return std::nullopt;
}

Refusal samplingRefusal(const SamplingConfig& config, const RequestLimits& limits) {
  if (config.getBeamWidth() > limits.max_beam_width) {
    return invalid("Requested beam width {} is larger than configured max beam width {}", config.getBeamWidth(),
                   limits.max_beam_width);
  }
  const auto finite = [](const std::optional<float>& value) { return std::isfinite(value.value_or(0.0f)); };
  if (!finite(config.getTemperature())) return invalid("temperature must be a finite number");
  if (!finite(config.getRepetitionPenalty())) return invalid("repetitionPenalty must be a finite number");
  if (!finite(config.getPresencePenalty())) return invalid("presencePenalty must be a finite number");
  if (!finite(config.getFrequencyPenalty())) return invalid("frequencyPenalty must be a finite number");
  const auto not_served = [](const char* field) {
    return Error(ErrorCode::kUnsupported, fmt::format("{} is not supported yet: leave it unset", field));
  };
  if (config.getNumReturnSequences().value_or(1) > kMostReturnSequences) {
    return invalid("numReturnSequences {} is larger than {}", *config.getNumReturnSequences(), kMostReturnSequences);
  }
  if (config.getBeamWidthArray()) return not_served("beamWidthArray");
  if (config.getBeamWidth() > 1) return not_served("beamWidth greater than 1");
  return std::nullopt;
}

Refusal outputRefusal(const executor::OutputConfig& output) {
  if (output.returnEncoderOutput)
    return Error(ErrorCode::kUnsupported, "returnEncoderOutput is not supported: the engine has no encoder");
  if (output.topLogProbs < 0) return invalid("topLogProbs ({}) must not be negative", output.topLogProbs);
  if (output.topLogProbs > 0 && !output.returnLogProbs && !output.returnPromptLogProbs)
    return invalid("topLogProbs needs returnLogProbs");
  return std::nullopt;
}

Refusal compositionRefusal(const executor::Request& request) {
  const size_t terms = request.getLoraComposition().size();
  if (terms > 0 && request.getLoraConfig())
    return invalid("a request has a LoraConfig or a LoRA composition, not both");
  if (terms > kMostComposed) return invalid("a LoRA composition has {} terms; the maximum is {}", terms, kMostComposed);
  return std::nullopt;
}

// Refuses TensorRT-LLM features that this build lacks; the error names the field of Request.
Refusal featureRefusal(const executor::Request& request) {
  const auto refused = [](const char* field, const char* why) {
    return Error(ErrorCode::kUnsupported, fmt::format("{} is not supported: {}", field, why));
  };
  constexpr const char* kUnset = "leave it unset";
  constexpr const char* kDecoder = "the engine has no encoder; leave it unset";
  if (request.getPositionIds()) return refused("positionIds", kUnset);
  if (request.getExternalDraftTokensConfig()) return refused("externalDraftTokensConfig", kUnset);
  if (request.getPromptTuningConfig()) return refused("pTuningConfig", kUnset);
  if (request.getMropeConfig()) return refused("mRopeConfig", kUnset);
  if (request.getLookaheadConfig()) return refused("lookaheadConfig", kUnset);
  if (request.getEagleConfig()) return refused("eagleConfig", kUnset);
  if (request.getGuidedDecodingParams()) return refused("guidedDecodingParams", kUnset);
  if (request.getLanguageAdapterUid()) return refused("languageAdapterUid", kUnset);
  if (request.getContextPhaseParams()) return refused("contextPhaseParams", kUnset);
  if (request.getRequestType() != executor::RequestType::REQUEST_TYPE_CONTEXT_AND_GENERATION)
    return refused("type", "use REQUEST_TYPE_CONTEXT_AND_GENERATION");
  if (request.getEncoderInputTokenIds()) return refused("encoderInputTokenIds", kDecoder);
  if (request.getEncoderInputFeatures()) return refused("encoderInputFeatures", kDecoder);
  if (request.getEncoderOutputLength()) return refused("encoderOutputLength", kDecoder);
  if (request.getCrossAttentionMask()) return refused("crossAttentionMask", kDecoder);
  if (request.getSkipCrossAttnBlocks()) return refused("skipCrossAttnBlocks", kDecoder);
  if (const auto& retention = request.getKvCacheRetentionConfig()) {
    const auto& ranges = retention->getTokenRangeRetentionConfigs();
    const auto usual = executor::KvCacheRetentionConfig::kDefaultRetentionPriority;
    const bool changes = retention->getDecodeRetentionPriority() != usual ||
                         std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) { return r.priority != usual; });
    if (changes)
      return refused("kvCacheRetentionConfig", "retention priorities other than the default are not supported");
  }
  const auto& outputs = request.getOutputConfig().additionalModelOutputs;
  if (outputs && !outputs->empty()) return refused("additionalModelOutputs", kUnset);
  return std::nullopt;
}

}  // namespace

std::optional<Error> refusalOf(const executor::Request& request, const RequestLimits& limits) {
  const auto& prompt = request.getInputTokenIds();
  auto refusal = lengthRefusal(static_cast<int64_t>(prompt.size()), limits);
  if (!refusal) refusal = featureRefusal(request);
  if (!refusal) refusal = wordsRefusal(request);
  if (!refusal) refusal = samplingRefusal(request.getSamplingConfig(), limits);
  if (!refusal) refusal = outputRefusal(request.getOutputConfig());
  if (!refusal) refusal = compositionRefusal(request);
  return refusal;
}

std::optional<Error> unknownTokenRefusal(const executor::Request& request, int32_t vocab_size, int32_t input_vocab_size,
                                         int32_t model_vocab_size) {
  auto refusal = tokenRefusal(request.getInputTokenIds(), input_vocab_size, "the prompt");
  if (!refusal) refusal = endIdRefusal(request, vocab_size);
  if (const auto& words = request.getBadWords()) {
    for (const auto& word : *words) {
      if (!refusal) refusal = tokenRefusal(word, vocab_size, "a bad word");
    }
  }
  if (!refusal) refusal = biasRefusal(request.getEmbeddingBias(), vocab_size, model_vocab_size);
  if (!refusal) refusal = biasRefusal(request, vocab_size);
  const auto reset = request.getSamplingConfig().getTopPResetIds();
  if (!refusal && reset && *reset >= vocab_size) {
    refusal = invalid("topPResetIds ({}) is not within the vocabulary [0, {})", *reset, vocab_size);
  }
  return refusal;
}

}  // namespace chorus
