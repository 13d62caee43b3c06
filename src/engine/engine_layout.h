// Where a checkpoint tensor goes in an engine: fused linears and the runtime's names for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weight_table.h"
#include "engine/engine_file.h"
#include "models/adapter_parts.h"

namespace chorus {

// A checkpoint tensor's place: rows [row_begin, row_begin + its rows) of an engine tensor.
struct EnginePlacement {
  std::string name;                // of the engine tensor: "transformer.layers.0.mlp.fc_gate"
  EngineTensorKind kind = EngineTensorKind::kVector;
  int64_t row_begin = 0;
};
EnginePlacement placeInEngine(const RankTensor& tensor);

// The engine tensors of one rank, with the shapes that the placements of its checkpoint tensors add up to. A model
// without lm_head.weight gets an "lm_head" of the embedding table's shape. Layers, then globals, in checkpoint order.
std::vector<EngineTensor> engineTensors(const std::vector<RankTensor>& tensors);

// The runtime linear that a table row feeds, for rows that adapters target: nullopt for others.
struct LinearPlace {
  LinearId linear = LinearId::kQkv;
  int64_t row_begin = 0;  // of the table row's first output feature, on one tensor-parallel rank
  bool operator==(const LinearPlace&) const = default;
};
std::optional<LinearPlace> linearPlace(const WeightRow& row, int64_t rank_rows);

}  // namespace chorus
