// Grouped linear: y = x W^T for every row, plus the LoRA terms of the row's group.
#pragma once

#include <cstdint>
#include <optional>

#include "base/cpu_features.h"
#include "kernels/step_batch.h"
#include "kernels/tensor.h"

namespace chorus {

// y = x W^T per row, plus the LoRA terms of the row's group.
//   - x: [rows, in] float32. y: [rows, out] float32, not an alias of x. rows may be 0.
//   - groups: their ranges count row 0 of x as first_row, so that a call may process some of the step's rows.
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
  GroupList<RowGroup> groups;
  int32_t first_row = 0;
};

// The type to which the CPU's linear with this instruction set (none: the reference) rounds the inputs of a product (x,
// and A x for B), to nearest even, for weights of this format.
DType linearInputType(std::optional<Isa> isa, const WeightFormat& weights);
// Number of consecutive inputs of a row that the linear converts to fixed point together
// (fixed_point.h; kWholeRow: all of them); 0 if it takes inputs of type linearInputType instead.
int64_t linearInputRun(std::optional<Isa> isa, const WeightFormat& weights);

// All sets for which this is true give a layer the same bits, whatever the format of its weights: they do not round the
// inputs of products with this float type, which is that of adapters and the KV cache.
bool isPortable(Isa isa, DType cache_dtype);
// The instruction set of the kernels that multiply weights of this format if the backend uses `isa`.
Isa linearIsa(Isa isa, const WeightFormat& weights);

namespace reference {
void linear(const LinearArgs& args, const StepBatch& batch);
}

}  // namespace chorus
