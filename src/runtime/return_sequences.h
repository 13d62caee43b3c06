// A request that asks for several answers without beams (numReturnSequences): one prompt, so many sequences
// that sample on their own and share the blocks of the prompt.
#pragma once

#include <cstdint>

#include "chorus/request.h"

namespace chorus {

inline constexpr int32_t kMostReturnSequences = 1024;

// What the sequences of one request have in common. Owned by them, used by the step thread alone.
struct SequenceGroup {
  executor::IdType request_id = 0;  // what the caller knows them by
  int32_t unfinished = 0;
  bool failed = false;       // an error was answered: nothing follows, and the rest of them end
  uint64_t claim_round = 0;  // in which their adapters were claimed together
  uint64_t reuse_realm = 0;  // of their own, where requests share nothing with others
  int32_t realm_users = 0;   // sequences that refer to it
};

// 1 where beams or a limit are in the way.
int32_t numSequences(const executor::Request& request);
// What one of several sequences asks for: its own seed, the request's plus index; what is about the prompt
// alone is answered by the first.
executor::Request requestOfSequence(const executor::Request& request, int32_t index);

}  // namespace chorus
