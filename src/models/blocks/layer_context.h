// The data that a block of the network reads and writes in one step on one rank.
#pragma once

#include "kernels/backend.h"
#include "models/activations.h"
#include "models/adapter_groups.h"
#include "models/model_weights.h"
#include "models/rank_links.h"

namespace chorus {

struct LayerContext {
  Backend& backend;
  StepContext& step;
  Stream stream;
  const AdapterGroups& adapters;
  const DecoderActivations& activations;
  const RankLinks& links;
  const SlotWeights& weights;  // of the layer, or those outside layers
  int32_t layer = 0;           // local id, or kOutsideLayers

  // y = x times the linear's weight, with the LoRA terms of the rows. first_row: the row of the step that is row 0 of
  // x, or its index in StepInput::logits_rows.
  void linear(LinearId id, const ConstMatrix& x, const Matrix& y, int32_t first_row = 0) const {
    backend.linear(
        {.x = x, .weight = weights[id].weight, .y = y, .groups = adapters.linear(layer, id), .first_row = first_row},
        step, stream);
  }
  // Adds up the partial results of the ranks, for example of a linear that is cut along its inputs.
  void sumOverRanks(const Matrix& x) const {
    if (links.tensor != nullptr) links.tensor->allReduceSum(x, stream);
  }
};

}  // namespace chorus
