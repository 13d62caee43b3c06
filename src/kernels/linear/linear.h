// Grouped linear: y = x W^T for every row, plus the LoRA terms of the row's group.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/step_batch.h"
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
  PackedWeight a;  // [rank, in], of a float format
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

// y = x W^T per row, plus the LoRA terms of the row's group.
//   - x: [rows, in] float32. y: [rows, out] float32, not an alias of x. rows may be 0.
//   - y may have more columns than a row's weight has outputs; the columns past them stay unchanged.
//   - weight may have no outputs if only groups have some.
//   - A row's result depends only on that row, its weight and its LoRA terms, bit for bit. Each output is one chain of
//     fused multiply-adds over ascending inputs. For int8 and int4 weights, inputs are taken in runs: a run is a scale
//     group, or a number of inputs that divides 1,024 if the group is longer. The sum of a run is one such chain
//     over the integers, or their exact sum in fixed point (fixed_point.h). The output is one chain of scale * sum over
//     ascending runs.
struct LinearArgs {
  ConstMatrix x;
  PackedWeight weight;
  Matrix y;
  std::span<const RowGroup> groups;
};

// The type to which the CPU's linear with this instruction set (none: the reference) rounds the inputs of a product (x,
// and A x for B), to nearest even, for weights of this format.
DType linearInputType(std::optional<Isa> isa, const WeightFormat& weights);
// Number of consecutive inputs of a row that the linear converts to fixed point together (fixed_point.h); 0 if it takes
// inputs of type linearInputType instead.
int64_t linearInputRun(std::optional<Isa> isa, const WeightFormat& weights);

// The instruction set of the kernels that multiply weights of this format if the backend uses `isa`.
Isa linearIsa(Isa isa, const WeightFormat& weights);

namespace reference {
void linear(const LinearArgs& args);
}

}  // namespace chorus
