// The mixture of experts of one layer: MlpKind::kExperts.
#pragma once

#include <vector>

#include "models/blocks/layer_context.h"
#include "models/model_spec.h"

namespace chorus {

std::vector<SlotNeed> expertsNeeds(const MlpSpec& spec, int64_t hidden_size);

// out = weighted sum of the outputs of the experts that the router chooses for each row, plus the output of the shared
// expert times the sigmoid of its gate. With several tensor-parallel ranks, out is this rank's part of a sum: every
// rank has its share of each expert and computes the same routing.
//   - x, out: [rows, hidden], neither of them in activations.wide.
void runExperts(const LayerContext& context, const MlpSpec& spec, const ConstMatrix& x, const Matrix& out);

}  // namespace chorus
