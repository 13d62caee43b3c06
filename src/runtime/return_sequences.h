// Requests for several answers without beams (numReturnSequences): one prompt, several sequences that sample
// independently and share the prompt's KV blocks.
#pragma once

#include <cstdint>

#include "chorus/request.h"

namespace chorus {

inline constexpr int32_t kMostReturnSequences = 1024;

// State shared by the sequences of one request, which own it together. Only the step thread uses it.
struct SequenceGroup {
  executor::IdType request_id = 0;  // the id that enqueue() returned
  int32_t unfinished = 0;           // sequences whose last response was not sent
  bool failed = false;              // an error was sent: no response follows, and the other sequences end
  uint64_t claim_round = 0;         // latest round in which their adapters were claimed together
  uint64_t cache_namespace = 0;     // the group's own cache namespace if requests share no blocks; 0: none
  int32_t namespace_users = 0;      // sequences that use cache_namespace
};

// Number of sequences of a request; 1 if it asks for beams or for more than kMostReturnSequences.
int32_t numSequences(const executor::Request& request);
// The request of sequence `index` of several. Its seed is the request's plus index. Only sequence 0 returns outputs
// about the prompt (context logits, prompt log probabilities).
executor::Request requestOfSequence(const executor::Request& request, int32_t index);

}  // namespace chorus
