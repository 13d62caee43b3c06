// Self-attention of one layer.
#pragma once

#include <vector>

#include "models/blocks/layer_context.h"
#include "models/model_spec.h"

namespace chorus {

// The values by which attention encodes positions, in device memory.
struct PositionTables {
  RopeTable rope;                       // of AttentionSpec::rope
  const float* query_scales = nullptr;  // of AttentionSpec::query_scaling, by position; null: none
  const float* slopes = nullptr;        // of AttentionSpec::alibi; null: none
};

std::vector<SlotNeed> attentionNeeds(const AttentionSpec& spec, int64_t hidden_size);

// out = the output projection, without its bias, of attention over x and the keys and values in the cache. Writes the
// keys and values of x to the cache. With several tensor-parallel ranks, out is this rank's part of a sum.
//   - x, out: [rows, hidden]. x may be in activations.hidden; out must not be in hidden or wide, except that it may
//     begin at the start of wide.
//   - norm: the model's, whose epsilon the norms of heads have.
//   - tables: those of spec.
void runAttention(const LayerContext& context, const AttentionSpec& spec, const NormSpec& norm,
                  const PositionTables& tables, const KvLayer& kv, const ConstMatrix& x, const Matrix& out);

}  // namespace chorus
