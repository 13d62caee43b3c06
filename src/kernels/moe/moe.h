// A mixture of experts: for every row, the weighted sum of the outputs of a few gated MLPs, which the row's router
// logits choose.
#pragma once

#include <cstdint>

#include "kernels/activation/activation_kind.h"
#include "kernels/linear/linear.h"

namespace chorus {

struct MoeRouting {
  int32_t top_k = 1;       // experts of a row, from 1 to the number of experts
  bool normalised = true;  // the weights of a row's experts sum to 1; otherwise they are shares of all experts
};

// The experts of one row: those with the top_k largest logits, the largest first. Of equal logits, the lower expert
// comes first. A NaN is less than every number that comes before it, so a row with NaN has some top_k different
// experts.
//   - weights: softmax of the logits of these experts (normalised), or their part of the softmax of all logits.
//   - experts, weights: [top_k].
void routeRow(const float* logits, int64_t num_experts, const MoeRouting& routing, int32_t* experts, float* weights);

// out = sum over the row's experts e, in routeRow()'s order, of weight[e] * proj_e(gated(fc_e(x)))
//       + sigmoid(shared_gate) * shared
//   - x: [rows, hidden] float32. logits: [rows, experts] float32.
//   - fc: expert 0's weight [2 * f, hidden]; proj: expert 0's weight [hidden, f]. The other experts follow (expertOf).
//     The second half of the outputs of fc is activated, as in TensorRT-LLM.
//   - shared: [rows, hidden], or without data: nothing is added.
//   - shared_gate: [rows, 1], or without data: the factor is 1.
//   - groups: their ranges count row 0 of x as first_row.
//   - workspace: moeWorkspace() elements of the type of x, which no other argument overlaps.
//   - out: [rows, hidden]. It may be `shared` itself; otherwise it overlaps no other argument. rows may be 0.
//   - A row's result depends only on that row, the experts' weights and the row's LoRA terms, bit for bit.
//   - Each linear has the arithmetic of LinearArgs. Only the weights of experts that some row has are read.
struct MoeArgs {
  ConstMatrix x;
  ConstMatrix logits;
  MoeRouting routing;
  PackedWeight fc;
  PackedWeight proj;
  ActivationKind kind = ActivationKind::kSilu;
  GroupList<MoeGroup> groups;
  int32_t first_row = 0;
  ConstMatrix shared;
  ConstMatrix shared_gate;
  void* workspace = nullptr;
  Matrix out;
};

// Elements of MoeArgs::workspace. fc_rows: outputs of fc, 2 * f.
inline int64_t moeWorkspace(int64_t rows, int32_t top_k, int64_t hidden, int64_t fc_rows) {
  return rows * top_k * (hidden + fc_rows);
}

namespace reference {
void moe(const MoeArgs& args, const StepBatch& batch);
}

}  // namespace chorus
