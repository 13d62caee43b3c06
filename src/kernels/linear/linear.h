// Grouped linear: y = x W^T for every row, and for the rows of a group its adapter parts on top.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// One adapter module on one linear, for output features [out_begin, out_begin + b.out):
//   y = magnitude * (W x + scale * (B (A x) + bias))
// magnitude is DoRA's m / ||W + scale B A||, bias is PEFT's lora_bias; null means 1 and 0. magnitude multiplies
// whatever stands in y for these features, so parts are applied in order and the base's bias is added by the consumer,
// afterwards (PEFT: DoRA does not scale the bias). The rank may be 0: then a and b have no data, and b.out alone says
// how many features the bias and the magnitude have. An adapter's own bias of a linear is such a part: its difference
// from the base's, after the part with the magnitude.
struct LinearPart {
  int64_t out_begin = 0;
  PackedWeight a;  // [rank, in], of a float format
  PackedWeight b;  // [features, rank], of a's format
  float scale = 1.0f;
  const float* bias = nullptr;       // [features], device memory
  const float* magnitude = nullptr;  // [features], device memory
};

// Rows that share parts and, where it has data, a weight that stands for LinearArgs::weight: of any format, with its
// inputs and no more outputs than y has columns. Parts lie within the outputs of their rows' weight. Groups of one call
// are disjoint.
struct RowGroup {
  std::span<const RowRange> ranges;  // ascending
  std::span<const LinearPart> parts;
  PackedWeight weight;
};

// x [rows, in], y [rows, out] float32, y does not alias x; rows may be 0. y may have more columns than a row's weight
// has outputs: these stay as they were. weight may have no outputs, where groups alone have some. Every row's result
// depends on that row, the weight and its parts alone, bit for bit: each output is one chain of fused multiply-adds
// over ascending inputs. Of int8 and int4 weights each group of inputs, or run of a divisor of kScaleRun inputs where
// it is longer, is such a chain over the integers or (fixed_point.h) their exact sum, and the output one chain of scale
// * sum over ascending runs.
struct LinearArgs {
  ConstMatrix x;
  PackedWeight weight;
  Matrix y;
  std::span<const RowGroup> groups;
};

// Packs num_rows contiguous rows of `in` elements of the format's dtype into dst, the start of a whole packed weight of
// packedBytes(...) bytes: source row r becomes output feature row_begin + r, so several sources are appended
// by calls in ascending order. Input padding is zeroed, and the features of the last panel past the rows
// given are too. Calls may run at the same time when each begins at a multiple of kPanelCols. Host to host;
// used at build time and for adapters.
// int8: signed elements. int4: signed, [num_rows / 2, in] bytes of an even row in the low half and the odd row after it
// in the high one; num_rows may be odd, row_begin may not. The scales of both are packed by packScales.
void packRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin, void* dst);

// The scales of such rows, [num_rows, groups of `in`] (or [num_rows] for a format without groups) of the type `from`,
// rounded to the format's: packed as packRows packs the rows, and in any order with it.
void packScales(const void* scales, DType from, const WeightFormat& format, int64_t num_rows, int64_t in,
                int64_t row_begin, void* dst);
// The reverse, for DoRA norms and tests: feature `row` of a packed weight as floats.
void unpackRow(const PackedWeight& weight, int64_t row, float* out);

// What the inputs of a product (x, and A x where B is applied) are rounded to, to nearest even, by the CPU's linear of
// that set (none: the reference) for weights of this format.
DType linearInputType(std::optional<Isa> isa, const WeightFormat& weights);
// Consecutive inputs of a row that it brings to fixed point together (fixed_point.h); 0 where it takes them as they are
// or by that type.
int64_t linearInputRun(std::optional<Isa> isa, const WeightFormat& weights);

// The set whose kernels multiply weights of this format where `isa` is chosen.
Isa linearIsa(Isa isa, const WeightFormat& weights);

namespace reference {
void linear(const LinearArgs& args);
}

}  // namespace chorus
