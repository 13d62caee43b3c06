// Rows of a linear that share LoRA terms or have a weight of their own.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_range.h"
#include "kernels/tensor.h"

namespace chorus {

// One LoRA term: one adapter module on one linear, for output features [out_begin, out_begin + b.out):
//   y = magnitude * (W x + scale * (B (A x) + bias))
//   - magnitude: DoRA's m / ||W + scale B A||; null means 1. It multiplies the current value of y for these features.
//     Therefore terms are applied in order, and the consumer adds the base's bias afterwards (PEFT: DoRA does not scale
//     the bias).
//   - bias: PEFT's lora_bias; null means 0.
//   - The rank may be 0: then a and b have no data, and b.out is the number of features of bias and magnitude. An
//     adapter's own bias of a linear is such a term: its difference from the base's bias, placed after the term with
//     the magnitude.
struct LoraTerm {
  int64_t out_begin = 0;
  PackedWeight a;  // [rank, in], of a float format, or of int8 with one float32 scale for each output
  PackedWeight b;  // [features, rank], of a's format
  float scale = 1.0f;
  const float* bias = nullptr;       // [features], device memory
  const float* magnitude = nullptr;  // [features], device memory
};

// Rows that share LoRA terms and, if weight.data is set, a weight of their own that replaces LinearArgs::weight. The
// own weight may have any format; it has the same inputs and at most as many outputs as y has columns. The terms lie
// within the outputs of the rows' weight. Groups of one call are disjoint.
struct RowGroup {
  std::span<const RowRange> ranges;  // ascending
  std::span<const LoraTerm> parts;
  PackedWeight weight;
};

}  // namespace chorus
