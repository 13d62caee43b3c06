#include "models/blocks/mlp.h"

#include <algorithm>

#include "models/blocks/moe.h"

namespace chorus {

ActivationKind activationKind(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return ActivationKind::kSilu;
    case Activation::kGelu:
      return ActivationKind::kGelu;
    case Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case Activation::kRelu:
      return ActivationKind::kRelu;
    case Activation::kReluSquared:
      return ActivationKind::kReluSquared;
  }
  return ActivationKind::kSilu;
}

namespace {

int64_t fcRows(const MlpSpec& spec) { return (spec.kind == MlpKind::kGated ? 2 : 1) * spec.intermediate_size; }
}  // namespace

std::vector<SlotNeed> mlpNeeds(const MlpSpec& spec, int64_t hidden_size) {
  if (spec.kind == MlpKind::kExperts) return expertsNeeds(spec, hidden_size);
  return {{slotOf(LinearId::kFc), fcRows(spec), hidden_size},
          {slotOf(LinearId::kProj), hidden_size, spec.intermediate_size}};
}

void runMlp(const LayerContext& context, const MlpSpec& spec, const ConstMatrix& x, const Matrix& out) {
  if (spec.kind == MlpKind::kExperts) return runExperts(context, spec, x, out);
  const float* bias = context.weights[LinearId::kFc].bias;
  for (int64_t first = 0; first < x.rows; first += context.activations.mlpRows()) {
    const RowRange slice{static_cast<int32_t>(first),
                         static_cast<int32_t>(std::min(x.rows, first + context.activations.mlpRows()))};
    const Matrix fc = context.activations.wide(slice.end - slice.begin, fcRows(spec));
    // The activation overwrites its input in place: it is elementwise, and this is the widest buffer.
    const Matrix activated = columnsOf(fc, 0, spec.intermediate_size);
    context.linear(LinearId::kFc, rowsOf(x, slice), fc, slice.begin);
    if (spec.kind == MlpKind::kGated) {
      context.backend.gatedActivation(
          {.fc_gate = fc, .bias = bias, .kind = activationKind(spec.activation), .out = activated}, context.step,
          context.stream);
    } else {
      context.backend.activation({.x = fc, .bias = bias, .kind = activationKind(spec.activation)}, context.step,
                                 context.stream);
    }
    context.linear(LinearId::kProj, activated, rowsOf(out, slice), slice.begin);
  }
}

}  // namespace chorus
