// Teacher forcing: runs given tokens through the ranks of an engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/rank_group.h"

namespace chorus::test {

// Session limits for teacherForced with up to 256 tokens and 8 KV groups.
inline const SessionOptions kTeacherForcedOptions = {
    .max_batch_size = 256, .tokens_per_block = 16, .kv_blocks = 8 * 16};

// Feeds the tokens in steps of at most `chunk` tokens. Returns the logits [tokens - first_position, vocab] from
// first_position on. adapter: null for the base.
std::vector<float> teacherForced(RankGroup& ranks, std::span<const int32_t> tokens, int64_t first_position,
                                 const PreparedAdapter* adapter, int64_t chunk = 1 << 20);

// The largest absolute value and the largest absolute difference. Both throw std::runtime_error if a value is not
// finite or the sizes differ.
double largestOf(std::span<const float> values);
double largestDifference(std::span<const float> a, std::span<const float> b);

}  // namespace chorus::test
