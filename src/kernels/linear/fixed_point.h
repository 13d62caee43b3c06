// Fixed-point inputs of int8 and int4 weights, for integer products. Every run of a row's inputs (kFixedRun of them, or
// a shorter scale group) is converted to fixed point of WeightFormat::activation_bits bits, scaled to the run's largest
// input. It has one or two digits of eight bits with a sign:
//   x = scale * low                    8 bits
//   x = scale * (256 * high + low)     16 bits
// The weights are unsigned, integer + bias, and the effect of the bias is subtracted:
//   sum of integer * x =
//       scale * (256 * sum of weight * high + (sum of weight * low - bias * sum of (256 * high + low)))
// where high is 0 for inputs of 8 bits.
// Everything but the scale is exact in 32 bits in any order, so every kernel gives the same bits. The only roundings
// are those of the inputs, of scale * sum, and of the chain of weight scale * (scale * sum) over ascending runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/linear/panel_layout.h"

namespace chorus {

inline constexpr int64_t kFixedRun = 128;
// Fixed-point value of a run's largest input; all of its digits are 127.
constexpr int fixedLevels(int digits) { return digits == 1 ? 127 : 127 * 256 + 127; }
// Lower bound for the largest input from which a run's scale is computed, so that scales and their inverses are normal
// numbers.
inline constexpr float kFixedLeast = 0x1p-110f;

constexpr int fixedBias(DType dtype) { return dtype == DType::kInt4 ? 8 : 128; }
// Inputs of one run, and digits of one input.
inline int64_t fixedRun(const WeightFormat& format) { return std::min(kFixedRun, packedGroup(format)); }
inline int fixedDigits(const WeightFormat& format) { return format.activation_bits / 8; }
static_assert(int64_t{255} * (fixedLevels(2) + 1) * kFixedRun < INT32_MAX, "the sum of a run must fit in 32 bits");

// fixedDigits and fixedRun of a format as constants, for kernels that are compiled for each.
template <int kDigitsOfInput, int kInputsOfRun>
struct FixedForm {
  static constexpr int kDigits = kDigitsOfInput;
  static constexpr int kRun = kInputsOfRun;
};
// Returns select(FixedForm<digits, run>()) for the digits and the run of a format.
template <class Select>
auto withFixedForm(const WeightFormat& format, const Select& select) {
  const auto with_digits = [&]<int kDigits>(std::integral_constant<int, kDigits>) {
    const int64_t run = fixedRun(format);
    return run == 32   ? select(FixedForm<kDigits, 32>())
           : run == 64 ? select(FixedForm<kDigits, 64>())
                       : select(FixedForm<kDigits, kFixedRun>());
  };
  return fixedDigits(format) == 1 ? with_digits(std::integral_constant<int, 1>())
                                  : with_digits(std::integral_constant<int, 2>());
}

// Layout of a tile: for every kFixedRun inputs, FixedDigits or FixedValues for each of its rows, as the kernel takes
// them, then FixedRuns for each. Inputs past the last one are zero.
//
// Kernels that multiply bytes take FixedDigits, of which the last is the low digit. For int4, each eight inputs are in
// the order 0 4 1 5 2 6 3 7 (kFixedOrder), which is that of a lane's even nibbles followed by its odd ones: one mask
// extracts either four.
template <int kDigits>
struct FixedDigits {
  int8_t digit[kDigits][kFixedRun];
};
// Kernels that multiply 16-bit integers take FixedValues. A pair holds the inputs of two weights that have the same
// place in the two halves of a lane (packedBit).
struct FixedValues {
  uint32_t pair[kFixedRun / 2];
};
// Scale and correction of the one, two or four runs of kFixedRun inputs. The scale is NaN if an input is not finite.
// The correction is -bias times the sum of the inputs in fixed point.
struct FixedRuns {
  float scale[4];
  int32_t correction[4];
};
// Bytes of kFixedRun inputs of a row. Inputs: FixedDigits or FixedValues.
template <class Inputs>
inline constexpr int64_t kFixedBytes = sizeof(Inputs) + sizeof(FixedRuns);
inline constexpr int kFixedOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace chorus
