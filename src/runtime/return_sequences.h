// Requests for several answers without beams (numReturnSequences): one prompt, several sequences that sample
// independently and share the prompt's KV blocks.
#pragma once

#include <cstdint>

#include "chorus/request.h"

namespace chorus {

inline constexpr int32_t kMostReturnSequences = 1024;

// Number of sequences of a request; 1 if it asks for beams or for more than kMostReturnSequences.
int32_t numSequences(const executor::Request& request);
// Returns the outputs that the answer of sequence `index` has. Only sequence 0 returns outputs about the prompt
// (context logits, prompt log probabilities).
executor::OutputConfig outputOfSequence(const executor::Request& request, int32_t index);

}  // namespace chorus
