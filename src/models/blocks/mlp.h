// The MLP of one layer, of any kind.
#pragma once

#include <vector>

#include "models/blocks/layer_context.h"
#include "models/model_spec.h"

namespace chorus {

// The kernels' name of an activation.
ActivationKind activationKind(Activation activation);

std::vector<SlotNeed> mlpNeeds(const MlpSpec& spec, int64_t hidden_size);

// out = the output projection, without its bias, of the activated input projection of x. With several tensor-parallel
// ranks, out is this rank's part of a sum.
//   - x, out: [rows, hidden], neither of them in activations.wide.
void runMlp(const LayerContext& context, const MlpSpec& spec, const ConstMatrix& x, const Matrix& out);

}  // namespace chorus
