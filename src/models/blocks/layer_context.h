// What a block of the network reads and writes in one step, on one rank.
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
  AdapterGroups& adapters;
  const DecoderActivations& activations;
  const RankLinks& links;
  const SlotWeights& weights;  // of the layer, or those outside layers
  int32_t layer = 0;           // local id, or kOutsideLayers

  // y = x times the linear's weight, with the LoRA terms of the rows. rows: those of the step that x holds.
  void linear(LinearId id, RowRange rows, const ConstMatrix& x, const Matrix& y) const {
    backend.linear({.x = x, .weight = weights[id].weight, .y = y, .groups = adapters.linear(layer, id, rows)}, step,
                   stream);
  }
  // Adds up the partial results of the ranks, for example of a linear that is cut along its inputs.
  void sumOverRanks(const Matrix& x) const {
    if (links.tensor != nullptr) links.tensor->allReduceSum(x.data, x.rows * x.cols, stream);
  }
};

inline RowRange allRowsOf(const ConstMatrix& x) { return {0, static_cast<int32_t>(x.rows)}; }

}  // namespace chorus
