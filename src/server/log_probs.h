// Log probabilities in the two shapes of the OpenAI API.
#pragma once

#include <vector>

#include "server/generation.h"

namespace chorus::server {

// Refuses (ApiError, status 400) what the engine can't give: log probabilities at all, or alternatives beyond the
// token that greedy sampling chose, which is the likeliest itself.
void checkLogProbs(const ApiContext& context, const GenerationOptions& options);

// Chat: {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}; null when not asked for.
OrderedJson chatLogProbs(const TextCodec& text, const GenerationOptions& options,
                         const std::vector<TokenLogProb>& tokens);

// Completions: parallel arrays. offset is where the first token's text begins in the choice's text; moved past them.
OrderedJson completionLogProbs(const TextCodec& text, const GenerationOptions& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset);

}  // namespace chorus::server
