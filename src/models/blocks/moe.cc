#include "models/blocks/moe.h"

#include <algorithm>

#include "models/blocks/mlp.h"

namespace chorus {
namespace {

// out = the shared expert's output for x. intermediate: memory for its input projection.
void runShared(const LayerContext& context, const MlpSpec& spec, const ConstMatrix& x, int32_t first_row,
               void* intermediate, const Matrix& out) {
  const Matrix fc = {intermediate, x.rows, 2 * spec.shared_size, 2 * spec.shared_size, x.dtype};
  const Matrix activated = columnsOf(fc, 0, spec.shared_size);
  context.linear(LinearId::kSharedFc, x, fc, first_row);
  context.backend.gatedActivation(
      {.fc_gate = fc, .kind = activationKind(spec.activation), .out = activated, .activates_second = true},
      context.step, context.stream);
  context.linear(LinearId::kSharedProj, activated, out, first_row);
}
}  // namespace

std::vector<SlotNeed> expertsNeeds(const MlpSpec& spec, int64_t hidden_size) {
  std::vector<SlotNeed> needs = {{slotOf(LinearId::kRouter), spec.experts, hidden_size},
                                 {slotOf(LinearId::kExpertsFc), 2 * spec.intermediate_size, hidden_size, spec.experts},
                                 {slotOf(LinearId::kExpertsProj), hidden_size, spec.intermediate_size, spec.experts}};
  if (spec.shared_size > 0) {
    needs.push_back({slotOf(LinearId::kSharedFc), 2 * spec.shared_size, hidden_size});
    needs.push_back({slotOf(LinearId::kSharedProj), hidden_size, spec.shared_size});
  }
  if (spec.shared_gate) needs.push_back({slotOf(LinearId::kSharedGate), 1, hidden_size});
  return needs;
}

void runExperts(const LayerContext& context, const MlpSpec& spec, const ConstMatrix& x, const Matrix& out) {
  for (int64_t first = 0; first < x.rows; first += context.activations.mlpRows()) {
    const RowRange slice{static_cast<int32_t>(first),
                         static_cast<int32_t>(std::min(x.rows, first + context.activations.mlpRows()))};
    const ConstMatrix input = rowsOf(x, slice);
    const Matrix output = rowsOf(out, slice);
    const Matrix router = context.activations.wide(input.rows, spec.experts + 1);
    const Matrix logits = columnsOf(router, 0, spec.experts), gate = columnsOf(router, spec.experts, 1);
    void* const workspace = router.at(router.rows, 0);
    if (spec.shared_size > 0) runShared(context, spec, input, slice.begin, workspace, output);
    if (spec.shared_gate) context.linear(LinearId::kSharedGate, input, gate, slice.begin);
    context.linear(LinearId::kRouter, input, logits, slice.begin);
    context.backend.moe({.x = input,
                         .logits = logits,
                         .routing = {.top_k = spec.top_k, .normalised = spec.normalised},
                         .fc = context.weights[LinearId::kExpertsFc].weight,
                         .proj = context.weights[LinearId::kExpertsProj].weight,
                         .kind = activationKind(spec.activation),
                         .groups = context.adapters.experts(context.layer),
                         .first_row = slice.begin,
                         .shared = spec.shared_size > 0 ? ConstMatrix(output) : ConstMatrix(),
                         .shared_gate = spec.shared_gate ? ConstMatrix(gate) : ConstMatrix(),
                         .workspace = workspace,
                         .out = output},
                        context.step, context.stream);
  }
}

}  // namespace chorus
