// Fixed-point inputs of int8 and int4 weights, for integer products. Every run of a row's inputs (kFixedRun of them, a
// shorter scale group, or with InputFormat::kInt8PerToken the whole row) is converted to fixed point, scaled to the
// run's largest input. It has one or two digits of eight bits with a sign:
//   x = scale * low                    8 bits
//   x = scale * (256 * high + low)     16 bits
// The weights are unsigned, integer + bias, and the effect of the bias is subtracted:
//   sum of integer * x =
//       scale * (256 * sum of weight * high + (sum of weight * low - bias * sum of (256 * high + low)))
// where high is 0 for inputs of 8 bits.
// Sums are taken modulo 2^32, and with the correction for the bias they fit in 32 bits, so every order gives the same
// bits. The only roundings are those of the inputs, of the sum to a float, of scale * sum, and of the chain of weight
// scale * (scale * sum) over ascending runs.
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
// Inputs of one run (kWholeRow: all inputs of a row), and digits of one input.
inline int64_t fixedRun(const WeightFormat& format) {
  return format.activations == InputFormat::kInt8PerToken ? kWholeRow : std::min(kFixedRun, packedGroup(format));
}
inline int fixedDigits(const WeightFormat& format) { return format.activations == InputFormat::kInt16 ? 2 : 1; }
static_assert(int64_t{255} * (fixedLevels(2) + 1) * kFixedRun < INT32_MAX, "the sum of a run must fit in 32 bits");
static_assert(int64_t{fixedBias(DType::kInt8)} * fixedLevels(1) * kMostInputsPerToken < INT32_MAX);

// fixedDigits and fixedRun of a format as constants, for kernels that are compiled for each.
template <int kDigitsOfInput, int kInputsOfRun>
struct FixedForm {
  static constexpr bool kPerToken = false;
  static constexpr int kDigits = kDigitsOfInput;
  static constexpr int kRun = kInputsOfRun;
};
// InputFormat::kInt8PerToken.
struct PerTokenForm {
  static constexpr bool kPerToken = true;
  static constexpr int kDigits = 1;
};
// Returns select(FixedForm<digits, run>()) for the digits and the run of a format that is not kInt8PerToken.
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
// withFixedForm for a format of int8 weights, which may be kInt8PerToken.
template <class Select>
auto withInt8Form(const WeightFormat& format, const Select& select) {
  return format.activations == InputFormat::kInt8PerToken ? select(PerTokenForm()) : withFixedForm(format, select);
}
// A format with this form.
template <class Form>
WeightFormat formatOf(DType dtype) {
  if constexpr (Form::kPerToken) {
    return {dtype, 0, DType::kBFloat16, InputFormat::kInt8PerToken};
  } else {
    return {dtype, Form::kRun, DType::kBFloat16, Form::kDigits == 1 ? InputFormat::kInt8 : InputFormat::kInt16};
  }
}

// Layout of a tile: for every kFixedRun inputs, FixedDigits or FixedValues for each of its rows, as the kernel takes
// them, then FixedRuns for each. Inputs past the last one are zero. PerTokenForm: for every 64 inputs, FixedDigits or
// FixedValues for each row, and after all inputs a TokenRun for each.
//
// Kernels that multiply bytes take FixedDigits, of which the last is the low digit. For int4, each eight inputs are in
// the order 0 4 1 5 2 6 3 7 (kFixedOrder), which is that of a lane's even nibbles followed by its odd ones: one mask
// extracts either four.
template <int kDigits, int kInputs = kFixedRun>
struct FixedDigits {
  int8_t digit[kDigits][kInputs];
};
// Kernels that multiply 16-bit integers take FixedValues. A pair holds the inputs of two weights that have the same
// place in the two halves of a lane (packedBit).
template <int kInputs = kFixedRun>
struct FixedValues {
  uint32_t pair[kInputs / 2];
};
// Inputs of a row that lie together in a tile, before those of the next row. Per token they fill a cache line, like a
// row of a tile register.
template <bool kPerToken>
inline constexpr int kFixedUnit = kPerToken ? 64 : kFixedRun;

// Scale and correction of the one, two or four runs of kFixedRun inputs. The scale is NaN if an input is not finite.
// The correction is -bias times the sum of the inputs in fixed point.
struct FixedRuns {
  float scale[4];
  int32_t correction[4];
};
// Scale and correction of a row that is one run. It is as long as a cache line, so that every tile begins on one.
struct TokenRun {
  float scale;
  int32_t correction;
  int32_t padding[14];
};
static_assert(sizeof(TokenRun) == 64);
// Bytes of kFixedUnit inputs of a row. Inputs: FixedDigits or FixedValues.
template <class Inputs, bool kPerToken = false>
inline constexpr int64_t kFixedBytes = sizeof(Inputs) + (kPerToken ? 0 : sizeof(FixedRuns));
// The TokenRuns of a tile of `rows` rows of `inputs` inputs.
template <class Inputs>
inline TokenRun* tokenRuns(void* tile, int64_t rows, int64_t inputs) {
  const int64_t units = (inputs + kFixedUnit<true> - 1) / kFixedUnit<true>;
  return reinterpret_cast<TokenRun*>(static_cast<Inputs*>(tile) + units * rows);
}
template <class Inputs>
inline const TokenRun* tokenRuns(const void* tile, int64_t rows, int64_t inputs) {
  return tokenRuns<Inputs>(const_cast<void*>(tile), rows, inputs);
}
// Sets the fields of PanelKernels that describe the layout. element_bytes: of an input.
template <class Form, class Kernels>
constexpr void setFixedLayout(int element_bytes, Kernels& kernels) {
  kernels.element_bytes = element_bytes;
  kernels.unit_inputs = kFixedUnit<Form::kPerToken>;
  kernels.unit_extra = Form::kPerToken ? 0 : sizeof(FixedRuns);
  kernels.row_extra = Form::kPerToken ? sizeof(TokenRun) : 0;
  if constexpr (Form::kPerToken) {
    kernels.fixed_run = kWholeRow;
  } else {
    kernels.fixed_run = Form::kRun;
  }
}
inline constexpr int kFixedOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace chorus
