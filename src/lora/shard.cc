#include "lora/shard.h"

#include <cstring>

#include "base/pace.h"
#include "checkpoint/shard.h"
#include "lora/adapter_builder.h"

namespace chorus {
namespace {

// Rows of `runs` of a row-major matrix of cols columns.
std::vector<std::byte> takeRows(const std::byte* data, int64_t cols, DType dtype, const std::vector<RowRun>& runs) {
  const size_t row_bytes = static_cast<size_t>(cols) * dtypeSize(dtype);
  std::vector<std::byte> out;
  for (const RowRun& run : runs) {
    const std::byte* begin = data + static_cast<size_t>(run.begin) * row_bytes;
    inPieces(run.rows, row_bytes, [&](int64_t row, int64_t rows) {
      const std::byte* piece = begin + static_cast<size_t>(row) * row_bytes;
      out.insert(out.end(), piece, piece + static_cast<size_t>(rows) * row_bytes);
    });
  }
  return out;
}

std::vector<std::byte> takeColumns(const std::byte* data, int64_t rows, int64_t cols, int64_t begin, int64_t count,
                                   DType dtype) {
  const size_t size = dtypeSize(dtype);
  std::vector<std::byte> out(static_cast<size_t>(rows * count) * size);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + static_cast<size_t>(row * count) * size,
                data + static_cast<size_t>(row * cols + begin) * size, static_cast<size_t>(count) * size);
    worked(static_cast<size_t>(count) * size);
  }
  return out;
}

const std::byte* store(Adapter& adapter, std::vector<std::byte> bytes) {
  const auto held = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  adapter.storage.push_back(held);
  return held->data();
}

void cutOutputs(AdapterModule& module, const std::vector<RowRun>& runs, Adapter& into) {
  module.b = store(into, takeRows(module.b, module.rank, module.dtype, runs));
  std::vector<float> magnitude;
  module.out = 0;
  for (const RowRun& run : runs) {
    module.out += run.rows;
    if (module.magnitude.empty()) continue;
    const auto begin = module.magnitude.begin() + run.begin;
    magnitude.insert(magnitude.end(), begin, begin + run.rows);
  }
  module.magnitude = std::move(magnitude);
}
}  // namespace

Adapter shardAdapter(const Adapter& adapter, const ModelConfig& config, const WeightTable& table, int32_t rank) {
  if (config.mapping.worldSize() == 1) return adapter;
  Adapter part = adapter;
  part.modules.clear();
  const int32_t tp_size = config.mapping.tp_size;
  const int32_t tp_rank = config.mapping.tpRank(rank);
  const LayerRange stage = stageLayers(config.num_hidden_layers, config.mapping, config.mapping.ppRank(rank));
  for (AdapterModule module : adapter.modules) {
    if (module.layer < stage.begin || module.layer >= stage.end) continue;
    const ModulePlace place = *findModule(table, module.module_id);
    const WeightRow& row = *place.row;
    if (row.shard.axis == ShardRule::Axis::kRows) {
      const auto runs = sliceRowsForRank(row, place.target->row_begin, place.target->rows, tp_size, tp_rank);
      if (runs.empty()) continue;
      cutOutputs(module, runs, part);
    } else if (row.shard.axis == ShardRule::Axis::kColumns) {
      const TensorSlice slice = sliceForRank(row, tp_size, tp_rank);
      module.a = store(part, takeColumns(module.a, module.rank, module.in, slice.col_begin, slice.cols, module.dtype));
      module.in = slice.cols;
    }
    part.modules.push_back(std::move(module));
  }
  return part;
}

}  // namespace chorus
