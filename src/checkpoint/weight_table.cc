#include "checkpoint/weight_table.h"

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/shard.h"

namespace chorus {

std::string layerName(std::string_view pattern, int32_t layer) {
  constexpr std::string_view kLayer = "{layer}";
  const size_t at = pattern.find(kLayer);
  if (at == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, at)) + std::to_string(layer) + std::string(pattern.substr(at + kLayer.size()));
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
  return shape;
}

namespace {

// The integers and the scales of a quantised row, whose unquantised tensor is `whole`.
void addQuantised(const RankTensor& whole, const WeightFormat& format, std::vector<RankTensor>& tensors) {
  const int64_t out = whole.shape[0], in = whole.shape[1];
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
  if (format.dtype == DType::kInt4) integers.shape[0] /= 2;
  RankTensor scales = whole;
  scales.name = scaleName(whole.name, format.group > 0);
  scales.shape = {out};
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
    const RankTensor whole = {.name = layerName(row.name, local),
                              .shape = std::move(shape),
                              .dtype = config.dtype,
                              .row = &row,
                              .layer = global,
                              .format = config.dtype,
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
      if (row.stage == Stage::kEveryLayer) add(row, layer - layers.begin, layer);
    }
  }
  for (const WeightRow& row : table) {
    if (row.stage == Stage::kLast && pp_rank == config.mapping.pp_size - 1) add(row, kOutsideLayers, kOutsideLayers);
  }
  return tensors;
}

}  // namespace chorus
