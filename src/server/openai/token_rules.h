// What a request's sampling fields mean to the engine, with the model's defaults where they say nothing.
#pragma once

#include <list>
#include <optional>

#include "chorus/request.h"
#include "server/model/api_context.h"
#include "server/openai/sampling_fields.h"

namespace chorus::server {

// What is the same for all choices of a job.
struct TokenRules {
  std::list<executor::VecTokens> badWords;
  std::optional<executor::Tensor> embeddingBias;  // [vocab]
};

// Tokenizes bad words, which the meter pays for. Throws ApiError (status 400) for a token id that the model does not
// have.
TokenRules tokenRulesOf(const SamplingFields& fields, const ApiContext& context, const TextCodec& text,
                        WorkMeter& meter);

// Penalties mean what OpenAI's API says: presence and frequency count the answer's tokens and are subtracted before
// the temperature divides. index: of the choice among those of one prompt; it changes the seed.
executor::SamplingConfig samplingConfigOf(const SamplingFields& fields, const GenerationDefaults& defaults,
                                          size_t promptLength, int32_t index);

}  // namespace chorus::server
