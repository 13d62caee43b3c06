#include "checkpoint/weight_table.h"

#include <charconv>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/shard.h"

namespace chorus {

namespace {

constexpr std::string_view kLayer = "{layer}", kExpert = "{expert}";

std::string replaced(std::string_view pattern, std::string_view placeholder, int64_t number) {
  const size_t at = pattern.find(placeholder);
  if (at == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, at)) + std::to_string(number) +
         std::string(pattern.substr(at + placeholder.size()));
}

// Removes the id at the beginning of a name, written as std::to_string writes it; nullopt if there is none.
std::optional<int64_t> takeId(std::string_view& name) {
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || (digits > 1 && name.front() == '0')) return std::nullopt;
  name.remove_prefix(digits);
  return id;
}
}  // namespace

std::string layerName(std::string_view pattern, int32_t layer) { return replaced(pattern, kLayer, layer); }
std::string expertName(std::string_view pattern, int64_t expert) { return replaced(pattern, kExpert, expert); }
bool namesExpert(std::string_view pattern) { return pattern.find(kExpert) != std::string_view::npos; }

std::optional<NameIds> idsIn(std::string_view pattern, std::string_view name) {
  NameIds ids;
  while (!pattern.empty()) {
    const bool is_layer = pattern.starts_with(kLayer);
    if (is_layer || pattern.starts_with(kExpert)) {
      const auto id = takeId(name);
      if (!id) return std::nullopt;
      (is_layer ? ids.layer : ids.expert) = *id;
      pattern.remove_prefix((is_layer ? kLayer : kExpert).size());
    } else {
      if (name.empty() || name.front() != pattern.front()) return std::nullopt;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(ids) : std::nullopt;
}

const WeightRow* findRow(const WeightTable& table, const WeightSlot& slot) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const WeightRow& r) { return r.slot == slot; });
  return row == table.end() ? nullptr : &*row;
}

std::vector<const WeightSource*> sourcesOf(const WeightRow& row, SourceFormat format) {
  std::vector<const WeightSource*> sources;
  for (const WeightSource& source : row.sources) {
    if (source.format == format) sources.push_back(&source);
  }
  return sources;
}

std::vector<int64_t> sourceShape(const WeightRow& row, const WeightSource& source) {
  std::vector<int64_t> shape = row.shape;
  shape[0] = source.in_source.rowsOfSource(source.rows);
  if (source.transform.transposed) std::reverse(shape.begin(), shape.end());
  if (row.experts > 0 && !namesExpert(source.name)) shape.insert(shape.begin(), row.experts);
  return shape;
}

void keepSpelling(WeightTable& table, SourceFormat format, const std::function<bool(const std::string& name)>& has) {
  int32_t last = 0;  // of the row before; a tensor that the file lacks is named accordingly
  for (WeightRow& row : table) {
    const int32_t layer = row.layers.empty() ? 0 : row.layers.front();
    const bool has_last = std::ranges::any_of(
        row.sources, [&](const WeightSource& source) { return source.format == format && source.spelling == last; });
    int32_t kept = has_last ? last : 0;
    for (int32_t spelling = 0;; ++spelling) {
      const auto first = std::ranges::find_if(row.sources, [&](const WeightSource& source) {
        return source.format == format && source.spelling == spelling;
      });
      if (first == row.sources.end()) break;
      if (!has(expertName(layerName(first->name, layer), 0))) continue;
      kept = spelling;
      break;
    }
    last = kept;
    std::erase_if(row.sources,
                  [&](const WeightSource& source) { return source.format == format && source.spelling != kept; });
  }
}

std::vector<RankTensor> rankTensors(const WeightTable& table, const ModelConfig& config, int32_t rank) {
  const int32_t pp_rank = config.mapping.ppRank(rank);
  const int32_t tp_rank = config.mapping.tpRank(rank);
  const auto quantisation = weightQuantisation(config);
  std::vector<RankTensor> tensors;
  const auto add = [&](const WeightRow& row, int32_t local, int32_t global) {
    const TensorSlice slice = sliceForRank(row, config.mapping.tp_size, tp_rank);
    std::vector<int64_t> shape = row.shape;
    shape[0] = slice.rows;
    if (shape.size() == 2) shape[1] = slice.cols;
    if (row.experts > 0) shape.insert(shape.begin(), row.experts);
    const DType dtype = row.dtype.value_or(config.dtype);
    const QuantScheme scheme = quantisation ? quantisation->schemeOf(row, global, dtype) : QuantScheme{dtype};
    const int64_t slot_begin = rankSlotBegin(table, row, config.mapping.tp_size, tp_rank);
    for (StoredTensor& stored : scheme.tensors(layerName(row.name, local), shape)) {
      tensors.push_back({.name = std::move(stored.name),
                         .shape = std::move(stored.shape),
                         .dtype = stored.dtype,
                         .row = &row,
                         .layer = global,
                         .role = stored.role,
                         .format = scheme.format,
                         .slot_begin = slot_begin});
    }
  };

  for (const WeightRow& row : table) {
    if (row.stage == Stage::kFirst && pp_rank == 0) add(row, kOutsideLayers, kOutsideLayers);
  }
  const LayerRange layers = stageLayers(config.num_hidden_layers, config.mapping, pp_rank);
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const WeightRow& row : table) {
      if (row.stage == Stage::kEveryLayer && row.isInLayer(layer)) add(row, layer - layers.begin, layer);
    }
  }
  for (const WeightRow& row : table) {
    if (row.stage == Stage::kLast && pp_rank == config.mapping.pp_size - 1) add(row, kOutsideLayers, kOutsideLayers);
  }
  return tensors;
}

}  // namespace chorus
