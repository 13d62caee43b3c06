// Translates a request's sampling fields to the engine's settings. Fields that are not set have the model's defaults.
#pragma once

#include <memory>
#include <vector>

#include "chorus/request.h"
#include "runtime/decoding/bad_words.h"
#include "server/model/api_context.h"
#include "server/openai/sampling_fields.h"

namespace chorus::server {

// Rules that are the same for all choices of a job.
struct TokenRules {
  std::shared_ptr<const BadWordTables> bad_words;                // null: none
  std::shared_ptr<const std::vector<executor::TokenBias>> bias;  // null: none
};

// Tokenizes bad words and charges the meter. Throws ApiError (status 400) for a token id that the model does not have,
// and for bad words of too many tokens.
TokenRules tokenRulesOf(const SamplingFields& fields, const ApiContext& context, const TextCodec& text,
                        WorkMeter& meter);

// Penalties are those of OpenAI's API: the presence and frequency penalties count the answer's tokens and are
// subtracted before the division by the temperature. index: index of the choice among those of one prompt; it is added
// to the seed.
executor::SamplingConfig samplingConfigOf(const SamplingFields& fields, const GenerationDefaults& defaults,
                                          size_t prompt_length, int32_t index);

}  // namespace chorus::server
