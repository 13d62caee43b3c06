// The sampling parameters of one request as plain numbers: SamplingConfig with its defaults filled in.
#pragma once

#include <cstdint>

#include "chorus/request.h"

namespace chorus {

// Logits divided by a lower temperature would overflow. At this one the likeliest token is always chosen already.
inline constexpr float kLowestTemperature = 1e-6f;

struct SamplingParams {
  bool greedy = true;
  float temperature = 1.0f;  // at least kLowestTemperature; a given 0 becomes 1 with greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;

  float top_p_decay = 1.0f;
  float top_p_min = 1e-6f;
  int32_t top_p_reset_id = -1;  // -1: none

  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t prompt_ignore_length = 0;  // presence and frequency penalties do not count this many first tokens
  int32_t min_tokens = 0;
  int32_t no_repeat_ngram_size = 0;  // 0: off

  // Greedy if topK is 1, if temperature is 0, or if none of temperature, topK (above 0), topP and minP is given.
  static SamplingParams from(const executor::SamplingConfig& config);

  bool countsTokens() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

}  // namespace chorus
