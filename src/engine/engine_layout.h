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
  std::string name;  // of the engine tensor: "transformer.layers.0.mlp.fc_gate"
  EngineTensorKind kind = EngineTensorKind::kVector;
  int64_t row_begin = 0;
};
// Scales have the place of their weight.
EnginePlacement placeInEngine(const RankTensor& tensor);

// Rows of the output head that each tensor-parallel rank holds, and of an embedding table that is cut along the
// vocabulary: the last ranks' may be padding.
int64_t vocabularyShare(const ModelConfig& config);

// A model without lm_head.weight takes its output head from the rank's embedding table, which holds whole rows: rows
// [begin, begin + rows) of it, zeros up to vocabularyShare.
struct TiedHead {
  int64_t begin = 0;
  int64_t rows = 0;
};
TiedHead tiedHead(const ModelConfig& config, int32_t rank);

// The engine tensors of one rank, with the shapes that the placements of its checkpoint tensors add up to, and an
// "lm_head" for a model without lm_head.weight. Layers, then globals, in checkpoint order. Throws Error(kUnsupported)
// when the parts of one engine tensor are quantised differently.
std::vector<EngineTensor> engineTensors(const std::vector<RankTensor>& tensors, const ModelConfig& config);

// Bytes of one rank's tensors in an engine of this model.
uint64_t packedWeightBytes(const WeightTable& table, const ModelConfig& config, int32_t rank);

// The runtime linear that a table row feeds, for rows that adapters target: nullopt for others.
struct LinearPlace {
  LinearId linear = LinearId::kQkv;
  int64_t row_begin = 0;  // of the table row's first output feature, on one tensor-parallel rank
  bool operator==(const LinearPlace&) const = default;
};
std::optional<LinearPlace> linearPlace(const WeightRow& row, int64_t rank_rows);

}  // namespace chorus
