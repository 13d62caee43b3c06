#include "checkpoint/source_names.h"

#include <algorithm>

namespace chorus {

SourceNames::SourceNames(const WeightTable& table, int32_t num_layers, SourceFormat format) : num_layers_(num_layers) {
  for (const WeightRow& row : table) {
    for (const WeightSource* source : sourcesOf(row, format)) {
      const bool is_new = std::ranges::none_of(entries_, [&](const Entry& entry) {
        return entry.source->name == source->name && entry.row->stage == row.stage && entry.row->layers == row.layers;
      });
      entries_.push_back({&row, source, is_new});
    }
  }
}

int64_t SourceNames::count() const {
  int64_t count = 0;
  for (const Entry& entry : entries_) {
    if (!entry.is_new) continue;
    int64_t layers = 1;
    if (entry.isInLayers()) {
      layers = entry.row->layers.empty()
                   ? num_layers_
                   : std::ranges::count_if(entry.row->layers, [&](int32_t layer) { return layer < num_layers_; });
    }
    count += layers * entry.experts();
  }
  return count;
}

bool SourceNames::isInLayer(const Entry& entry, int64_t layer) const {
  if (!entry.isInLayers()) return layer == 0;
  return layer < num_layers_ && entry.row->isInLayer(static_cast<int32_t>(layer));
}

std::optional<SourceNames::Tensor> SourceNames::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (!entry.is_new) continue;
    const auto ids = idsIn(entry.source->name, name);
    if (!ids || !isInLayer(entry, ids->layer) || ids->expert >= entry.experts()) continue;
    return Tensor{entry.row, entry.source, static_cast<int32_t>(ids->layer), true};
  }
  return std::nullopt;
}

bool SourceNames::visitLayer(const Entry& entry, int32_t layer, const Visit& visit) {
  const std::string name = layerName(entry.source->name, layer);
  for (int64_t expert = 0; expert < entry.experts(); ++expert) {
    if (!visit({entry.row, entry.source, layer, entry.is_new}, expertName(name, expert))) return false;
  }
  return true;
}

void SourceNames::forEach(const Visit& visit) const {
  for (const Entry& entry : entries_) {
    const int32_t layers = entry.isInLayers() ? num_layers_ : 1;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (isInLayer(entry, layer) && !visitLayer(entry, layer, visit)) return;
    }
  }
}

void SourceNames::forEachOfLayer(int32_t layer, const Visit& visit) const {
  for (const Entry& entry : entries_) {
    if (entry.isInLayers() && isInLayer(entry, layer) && !visitLayer(entry, layer, visit)) return;
  }
}

void SourceNames::forEachOfStage(Stage stage, const Visit& visit) const {
  for (const Entry& entry : entries_) {
    if (entry.row->stage == stage && !visitLayer(entry, 0, visit)) return;
  }
}

}  // namespace chorus
