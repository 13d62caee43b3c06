// The inputs of int8 and int4 weights by integer dot products. Every run of kFixedRun inputs of a row, or of a shorter
// group, is brought to 16 bits of fixed point, as wide as its largest input: x = scale * (256 * high + low), both
// digits of eight bits and a sign. The weights are unsigned, integer + bias, and what the bias adds is taken off again:
//   sum of integer * x = scale * (256 * sum of weight * high + (sum of weight * low - bias * sum of (256 * high +
//   low)))
// All but the scale is exact in 32 bits, in any order, so every kernel gives the same bits: the rounding of the inputs,
// of scale * sum and of the chain of weight scale * that over ascending runs are all there are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/tensor.h"

namespace chorus {

inline constexpr int64_t kFixedRun = 128;
// The largest input of a run, of which both digits are 127.
inline constexpr int kFixedLevels = 127 * 256 + 127;
// A run whose inputs are all smaller is held as one that reaches this: scales and their inverses stay normal numbers.
inline constexpr float kFixedLeast = 0x1p-110f;

constexpr int fixedBias(DType dtype) { return dtype == DType::kInt4 ? 8 : 128; }
// Inputs of one run.
inline int64_t fixedRun(const WeightFormat& format) { return std::min(kFixedRun, packedGroup(format)); }
static_assert(int64_t{255} * (kFixedLevels + 1) * kFixedRun < INT32_MAX, "a run's sum has 32 bits");

// A tile: for every kFixedRun inputs FixedDigits for each of its rows, then FixedRuns for each. Digits past the last
// input are zero. In the digits of int4 each eight inputs are in the order in which a lane's even and odd nibbles are
// masked out: 0 4 1 5 2 6 3 7.
struct FixedDigits {
  int8_t high[kFixedRun];
  int8_t low[kFixedRun];
};
// Of the one, two or four runs: a scale that is NaN where an input is not finite, and -bias times the inputs' sum.
struct FixedRuns {
  float scale[4];
  int32_t correction[4];
};
inline constexpr int64_t kFixedBytes = sizeof(FixedDigits) + sizeof(FixedRuns);
inline constexpr int kFixedOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace chorus
