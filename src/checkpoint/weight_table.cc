#include "checkpoint/weight_table.h"

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
}  // namespace

std::string layerName(std::string_view pattern, int32_t layer) { return replaced(pattern, kLayer, layer); }
std::string expertName(std::string_view pattern, int64_t expert) { return replaced(pattern, kExpert, expert); }
bool namesExpert(std::string_view pattern) { return pattern.find(kExpert) != std::string_view::npos; }

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

void keepSpelling(WeightTable& table, const std::function<bool(const std::string& name)>& has) {
  for (WeightRow& row : table) {
    const int32_t layer = row.layers.empty() ? 0 : row.layers.front();
    int32_t kept = 0;
    for (int32_t spelling = 0;; ++spelling) {
      const auto first = std::ranges::find(row.sources, spelling, &WeightSource::spelling);
      if (first == row.sources.end()) break;
      if (!has(expertName(layerName(first->name, layer), 0))) continue;
      kept = spelling;
      break;
    }
    std::erase_if(row.sources, [&](const WeightSource& source) { return source.spelling != kept; });
  }
}

namespace {

// The integers and the scales of a quantised row, whose unquantised tensor is `whole`.
void addQuantised(const RankTensor& whole, const WeightFormat& format, std::vector<RankTensor>& tensors) {
  const int64_t out = whole.rows(), in = whole.cols();
  if (format.dtype == DType::kInt4 && out % 2 != 0) {
    fail(ErrorCode::kUnsupported,
         "{}: {} rows on a rank cannot be int4, which packs them in pairs; exclude it or use int8", whole.name, out);
  }
  if (format.group > 0 && in % format.group != 0) {
    fail(ErrorCode::kUnsupported, "{}: group size {} does not divide the {} inputs of a rank", whole.name, format.group,
         in);
  }
  RankTensor integers = whole;
  integers.dtype = DType::kInt8;
  integers.part = TensorPart::kIntegers;
  integers.format = format;
  if (format.dtype == DType::kInt4) integers.shape[integers.shape.size() - 2] /= 2;
  RankTensor scales = whole;
  scales.name = scaleName(whole.name, format.group > 0);
  scales.shape.pop_back();
  if (format.group > 0) scales.shape.push_back(in / format.group);
  scales.part = TensorPart::kScales;
  scales.format = format;
  tensors.push_back(std::move(integers));
  tensors.push_back(std::move(scales));
}
}  // namespace

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
    const RankTensor whole = {.name = layerName(row.name, local),
                              .shape = std::move(shape),
                              .dtype = row.dtype.value_or(config.dtype),
                              .row = &row,
                              .layer = global,
                              .format = row.dtype.value_or(config.dtype),
                              .slot_begin = rankSlotBegin(table, row, config.mapping.tp_size, tp_rank)};
    if (quantisation && quantisation->takes(row, global)) {
      addQuantised(whole, quantisation->format, tensors);
    } else {
      tensors.push_back(whole);
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
