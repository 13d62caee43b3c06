#include "engine/rank_weights.h"

#include <type_traits>

#include "base/progress.h"
#include "engine/engine_layout.h"

namespace chorus {
namespace {

TableWeights loadTable(const Engine& engine, const EngineTensor& tensor, const WeightRow& row) {
  const Engine::Table table = engine.table(tensor.name, tensor.rows, tensor.cols);
  const bool is_cut = row.shard.axis == ShardRule::Axis::kRows;
  const int64_t first = is_cut ? engine.config().mapping.tpRank(engine.rank()) * tensor.rows : 0;
  return {.table = {.data = table.data, .dtype = table.dtype, .vocab = table.rows, .first_token = first},
          .cols = table.cols};
}

void load(const Engine& engine, const EngineTensor& tensor, const EngineLayout::Place& place, ModelWeights& weights) {
  SlotWeights& slots = weights.at(place.layer);
  const WeightSlot& slot = place.slot;
  switch (tensor.kind) {
    case EngineTensorKind::kLinear:
      slots[slot.linear()].weight = engine.linear(tensor.name, tensor.rows, tensor.cols);
      slots[slot.linear()].experts = tensor.experts;
      return;
    case EngineTensorKind::kTable:
      slots[slot.table()] = loadTable(engine, tensor, *place.row);
      return;
    case EngineTensorKind::kVector: {
      const float* values = engine.vector(tensor.name, tensor.cols);
      if (slot.kind == SlotKind::kLinear) {
        slots[slot.linear()].bias = values;
      } else if (slot.isBias()) {
        slots[slot.norm()].bias = values;
      } else {
        slots[slot.norm()].weight = values;
        slots[slot.norm()].size = tensor.cols;
      }
    }
  }
}
}  // namespace

ModelWeights loadWeights(const Engine& engine) {
  const ModelConfig& config = engine.config();
  const WeightTable table = engine.architecture().weightTable(config);
  const std::vector<RankTensor> tensors = rankTensors(table, config, engine.rank());
  const EngineLayout layout = engineLayout(tensors, config, engine.rank());
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(engine.layers().count()));
  for (size_t i = 0; i < layout.tensors.size(); ++i) load(engine, layout.tensors[i], layout.places[i], weights);
  return weights;
}

ModelWeights importWeights(ModelWeights weights, const Engine& engine, Backend& backend) {
  const auto file = engine.weightFile();
  Progress progress("loading " + engine.path().filename().string(), file.size());
  const auto imported = [&](size_t bytes) { progress.add(bytes); };
  const auto* device = static_cast<const std::byte*>(backend.importWeights(file.data(), file.size(), imported));
  weights.forEachPointer([&](auto*& pointer) {
    if (pointer == nullptr) return;
    const std::byte* moved = device + (reinterpret_cast<const std::byte*>(pointer) - file.data());
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(moved);
  });
  return weights;
}

}  // namespace chorus
