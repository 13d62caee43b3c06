// Log probabilities in the two shapes of the OpenAI API. A token that holds a part of a character is written as
// "bytes:\xf0\x9f", as OpenAI does.
#pragma once

#include <vector>

#include "server/openai/generation.h"

namespace chorus::server {

// Chat: {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}; null when not asked for.
OrderedJson chatLogProbs(const TextCodec& text, const GenerationOptions& options,
                         const std::vector<TokenLogProb>& tokens);

// Completions: parallel arrays; top_logprobs has the chosen token beside the likeliest ones. offset is where the first
// token's text begins in the choice's text, in characters; moved past them.
OrderedJson completionLogProbs(const TextCodec& text, const GenerationOptions& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset);

}  // namespace chorus::server
