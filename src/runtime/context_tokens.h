// Divides a step's tokens between the contexts of its plan: the second half of schedule().
//
// Tokens are given in pieces of a block. A chunk ends at the end of a block or of the context, or inside a block if
// RequestView::max_chunk does not reach the end of the first block.
// Contexts of several clients get pieces in turn. If all are of one client, chunking_policy decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/scheduler.h"

namespace chorus {

// Tokens that the request gets next if it already has `given` tokens of this step: up to the end of a block,
// or max_chunk tokens if those are fewer, or the whole context if it may not be chunked; 0 if its chunk cannot grow
// further.
int32_t nextPiece(const SchedulerLimits& limits, const RequestView& request, int32_t given);

// Sets num_tokens of `contexts`, which are 0 before, to at most `tokens` together. lanes: scratch memory.
void shareContextTokens(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests,
                        int32_t tokens, std::span<PlannedSequence> contexts, std::vector<ContextLane>& lanes);

}  // namespace chorus
