// How one request's tokens are chosen, as plain numbers: what the executor's SamplingConfig means with its
// defaults filled in.
#pragma once

#include <cstdint>

#include "chorus/request.h"

namespace chorus {

// Lower ones would overflow what they divide; at this one the likeliest token is chosen already.
inline constexpr float kLowestTemperature = 1e-6f;

struct SamplingParams {
  bool greedy = true;
  float temperature = 1.0f;  // at least kLowestTemperature; 1 when greedy because it was 0
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
  int32_t prompt_ignore_length = 0;  // first tokens that presence and frequency do not count
  int32_t min_tokens = 0;
  int32_t no_repeat_ngram_size = 0;  // 0: off

  // Greedy with topK 1, with temperature 0, and when none of temperature, topK (above 0), topP, minP is
  // given.
  static SamplingParams from(const executor::SamplingConfig& config);

  bool countsTokens() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

}  // namespace chorus
