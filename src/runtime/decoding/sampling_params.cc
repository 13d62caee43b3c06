#include "runtime/decoding/sampling_params.h"

#include <algorithm>

namespace chorus {

SamplingParams SamplingParams::from(const executor::SamplingConfig& config) {
  constexpr int32_t kNoNgramLimit = 1 << 30;  // TensorRT-LLM's default, which means off
  SamplingParams params;
  params.temperature = config.getTemperature().value_or(1.0f);
  params.top_k = config.getTopK().value_or(0);
  params.top_p = config.getTopP().value_or(1.0f);
  params.min_p = config.getMinP().value_or(0.0f);
  params.seed = config.getSeed().value_or(0);
  const bool asked = config.getTemperature() || params.top_k > 0 || config.getTopP() || config.getMinP();
  params.greedy = !asked || params.top_k == 1 || params.temperature == 0.0f;
  params.temperature = params.temperature == 0.0f ? 1.0f : std::max(params.temperature, kLowestTemperature);

  params.top_p_decay = config.getTopPDecay().value_or(params.top_p_decay);
  params.top_p_min = config.getTopPMin().value_or(params.top_p_min);
  params.top_p_reset_id = config.getTopPResetIds().value_or(params.top_p_reset_id);

  params.repetition_penalty = config.getRepetitionPenalty().value_or(1.0f);
  params.presence_penalty = config.getPresencePenalty().value_or(0.0f);
  params.frequency_penalty = config.getFrequencyPenalty().value_or(0.0f);
  params.prompt_ignore_length = config.getPromptIgnoreLength().value_or(0);
  params.min_tokens = config.getMinTokens().value_or(0);
  const int32_t ngram = config.getNoRepeatNgramSize().value_or(0);
  params.no_repeat_ngram_size = ngram >= kNoNgramLimit ? 0 : ngram;
  return params;
}

}  // namespace chorus
