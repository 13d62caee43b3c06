#include "runtime/request_checks.h"

#include <fmt/format.h>

namespace chorus {
namespace {

using executor::SamplingConfig;

std::string notServed(const char* field) {
  return fmt::format("{} is not supported yet: leave it unset", field);
}

// A value that changes nothing is as good as none.
std::optional<std::string> unservedSampling(const SamplingConfig& config) {
  constexpr int32_t kNoNgramLimit = 1 << 30;  // TensorRT-LLM's default: off
  if (config.getRepetitionPenalty().value_or(1.0f) != 1.0f) return notServed("repetitionPenalty");
  if (config.getPresencePenalty().value_or(0.0f) != 0.0f) return notServed("presencePenalty");
  if (config.getFrequencyPenalty().value_or(0.0f) != 0.0f) return notServed("frequencyPenalty");
  const int32_t ngram = config.getNoRepeatNgramSize().value_or(0);
  if (ngram != 0 && ngram != kNoNgramLimit) return notServed("noRepeatNgramSize");
  if (config.getTopPDecay().value_or(1.0f) != 1.0f) return notServed("topPDecay");
  if (config.getNumReturnSequences().value_or(1) != 1) return notServed("numReturnSequences");
  if (config.getBeamWidthArray()) return notServed("beamWidthArray");
  if (config.getBeamWidth() > 1) return notServed("beamWidth greater than 1");
  return std::nullopt;
}

}  // namespace

std::optional<std::string> refusalOf(const executor::Request& request, const RequestLimits& limits) {
  const auto& prompt = request.getInputTokenIds();
  const auto length = static_cast<int64_t>(prompt.size());
  if (length > limits.longestPrompt()) {
    return fmt::format(
        "Prompt length ({}) exceeds maximum input length ({}). Set log level to info and check TRTGptModel "
        "logs for how "
        "maximum input length is set",
        length, limits.longestPrompt());
  }
  if (!limits.chunked_context && length > limits.max_num_tokens) {
    return fmt::format("The number of context tokens ({}) exceeds the limit value ({})", length,
                       limits.max_num_tokens);
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= limits.vocab_size) {
      return fmt::format("Token {} at position {} of the prompt is not within the vocabulary [0, {})",
                         prompt[i], i, limits.vocab_size);
    }
  }
  const auto bad_end = [&](int32_t id) {
    return fmt::format("EndId ({}) is not within acceptable range [-1, {}).", id, limits.vocab_size);
  };
  const auto in_range = [&](int32_t id) { return id >= -1 && id < limits.vocab_size; };
  if (request.getEndId() && !in_range(*request.getEndId())) return bad_end(*request.getEndId());
  for (const int32_t id : request.getExtraEndIds()) {
    if (!in_range(id)) return bad_end(id);
  }
  for (const auto& word : request.getStopWords()) {
    if (word.empty()) return "stopWords holds an empty word";
  }
  const auto& sampling = request.getSamplingConfig();
  if (sampling.getBeamWidth() > limits.max_beam_width) {
    return fmt::format("Requested beam width {} is larger than configured max beam width {}",
                       sampling.getBeamWidth(), limits.max_beam_width);
  }
  if (request.getOutputConfig().returnEncoderOutput) return "returnEncoderOutput needs an encoder";
  return unservedSampling(sampling);
}

}  // namespace chorus
