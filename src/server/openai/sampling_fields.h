// The sampling fields of a request: OpenAI's, and those that vLLM and NIM add.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/openai/request_json.h"

namespace chorus::server {

// Unset: the model's default.
struct SamplingFields {
  std::optional<double> temperature;  // [0, 2]; 0 is greedy
  std::optional<double> top_p;        // [0, 1]; 0 is greedy
  std::optional<double> min_p;        // [0, 1]
  std::optional<int32_t> top_k;       // 0: all
  std::optional<uint64_t> seed;
  std::optional<double> presence_penalty;       // [-2, 2], applied to tokens of the answer
  std::optional<double> frequency_penalty;      // [-2, 2], applied to tokens of the answer
  std::optional<double> repetition_penalty;     // above 0, applied to tokens of prompt and answer
  std::optional<int32_t> no_repeat_ngram_size;  // 0: off
  std::optional<int32_t> min_tokens;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token ids and biases in [-100, 100]
  std::vector<std::string> bad_words;                 // none is empty
  std::optional<std::string> cache_salt;  // not empty; KV blocks are shared only between requests of equal salts
};

// Throws ApiError with status 400 that names the field.
SamplingFields parseSamplingFields(const FieldReader& fields);

}  // namespace chorus::server
