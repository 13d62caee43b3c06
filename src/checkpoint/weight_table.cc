#include "checkpoint/weight_table.h"

#include "checkpoint/shard.h"

namespace chorus {

std::string layerName(std::string_view pattern, int32_t layer) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, at)) + std::to_string(layer) + std::string(pattern.substr(at + 2));
}

std::vector<RankTensor> rankTensors(const WeightTable& table, const ModelConfig& config, int32_t rank) {
  const int32_t pp_rank = config.mapping.ppRank(rank);
  const int32_t tp_rank = config.mapping.tpRank(rank);
  std::vector<RankTensor> tensors;
  const auto add = [&](const WeightRow& row, int32_t local, int32_t global) {
    const TensorSlice slice = sliceForRank(row, config.mapping.tp_size, tp_rank);
    std::vector<int64_t> shape = row.shape;
    shape[0] = slice.rows;
    if (shape.size() == 2) shape[1] = slice.cols;
    tensors.push_back({layerName(row.name, local), std::move(shape), config.dtype, &row, global});
  };

  for (const WeightRow& row : table) {
    if (row.stage == Stage::kFirst && pp_rank == 0) add(row, -1, -1);
  }
  const LayerRange layers = stageLayers(config.num_hidden_layers, config.mapping, pp_rank);
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const WeightRow& row : table) {
      if (row.stage == Stage::kEveryLayer) add(row, layer - layers.begin, layer);
    }
  }
  for (const WeightRow& row : table) {
    if (row.stage == Stage::kLast && pp_rank == config.mapping.pp_size - 1) add(row, -1, -1);
  }
  return tensors;
}

}  // namespace chorus
