// A row's tokens through the ranks of an engine, all given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/rank_group.h"

namespace chorus::test {

// Limits of a group that runs teacherForced for up to 256 tokens.
inline constexpr SessionOptions kTeacherForcedOptions = {
    .max_batch_size = 256, .tokens_per_block = 16, .kv_blocks = 16};

// Feeds the tokens in steps of at most `chunk` and returns the logits [tokens - first_position, vocab] from
// first_position on. adapter: null for the base.
std::vector<float> teacherForced(RankGroup& ranks, std::span<const int32_t> tokens, int64_t first_position,
                                 const PreparedAdapter* adapter, int64_t chunk = 1 << 20);

// The largest absolute value, and the largest absolute difference; both throw std::runtime_error where a
// value is not finite or the sizes differ.
double largestOf(std::span<const float> values);
double largestDifference(std::span<const float> a, std::span<const float> b);

}  // namespace chorus::test
