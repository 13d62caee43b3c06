#include "lora/tensor_adapter.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/sha256.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

struct ConfigRow {
  int32_t module_id;
  int32_t layer;
  int32_t rank;
  bool is_dora;
};

// [rows, columns] of a tensor that may have a leading dimension of 1.
std::pair<int64_t, int64_t> rowsAndColumns(const TensorView& tensor, const char* name) {
  const auto& shape = tensor.shape;
  if (shape.size() != 2 && shape.size() != 3) fail(kInvalid, "Invalid shape for {} tensor", name);
  if (shape.size() == 3 && shape[0] != 1) fail(kInvalid, "Expected batch dimension to be 1 for each lora request");
  return {shape[shape.size() - 2], shape.back()};
}

ConfigRow configRow(const TensorView& config, int64_t row, int64_t columns) {
  int32_t values[4] = {};
  std::memcpy(values, config.bytes.data() + static_cast<size_t>(row * columns) * sizeof(int32_t),
              static_cast<size_t>(columns) * sizeof(int32_t));
  return {values[0], values[1], values[2], values[3] != 0};
}

TensorView slice(const TensorView& weights, int64_t begin, std::vector<int64_t> shape, int64_t count) {
  const size_t size = dtypeSize(weights.dtype);
  return {weights.dtype, std::move(shape),
          weights.bytes.subspan(static_cast<size_t>(begin) * size, static_cast<size_t>(count) * size)};
}

// `added` holds (layer, module id) of the rows so far.
void addRow(const ConfigRow& row, const TensorView& values, const AdapterTarget& target,
            std::set<std::pair<int32_t, int32_t>>& added, AdapterBuilder& builder) {
  if (row.layer < 0 || row.layer >= target.config.num_hidden_layers) {
    fail(kInvalid, "Expected layerId to be in the range [0, numModelLayers): {} with {} layers", row.layer,
         target.config.num_hidden_layers);
  }
  if (row.rank <= 0) fail(kInvalid, "Expected adapterSize to be > 0, got {}", row.rank);
  const auto id_name = loraModuleName(row.module_id);
  const std::string module_name = id_name ? std::string(*id_name) : std::to_string(row.module_id);
  const std::vector<ModulePlace> places = findModulesOfId(target.table, row.module_id, row.layer);
  if (places.empty()) fail(kInvalid, "lora module {} not enabled for this model", module_name);

  const int64_t in = places.front().in();
  int64_t out = 0;
  for (const ModulePlace& place : places) out += place.out();
  const int64_t experts = places.front().row->experts, weights = std::max<int64_t>(experts, 1);
  if (row.is_dora && experts > 0)
    fail(kInvalid, "lora module {} has experts, whose DoRA is not supported", module_name);
  const int64_t dora_count = row.is_dora ? out : 0;
  if (values.elements() < dora_count || row.rank > (values.elements() - dora_count) / ((in + out) * weights)) {
    fail(kInvalid, "lora_weights has to few values for {}", module_name);
  }
  if (target.max_rank > 0 && row.rank > target.max_rank) {
    fail(kInvalid, "Invalid low_rank ({}). low_rank must be smaller than mMaxLowRank ({})", row.rank, target.max_rank);
  }
  const int64_t rank = row.rank;
  const TensorView used = slice(values, 0, {}, rank * (in + out) * weights + dora_count);
  if (!allFinite(used.bytes, used.dtype, target.throttle)) {
    fail(kInvalid, "lora_weights of {} in layer {} holds values that are not finite", module_name, row.layer);
  }
  // The values are A [experts, rank, in], B [experts, out, rank] and the magnitude.
  int64_t row_begin = 0;
  for (const ModulePlace& place : places) {
    const int32_t id = place.target->module_id;
    if (!added.emplace(row.layer, id).second)
      fail(kInvalid, "lora_keys names module {} of layer {} twice", id, row.layer);
    AdapterModule whole = {.module_id = id,
                           .module_name = place.target->module_name,
                           .layer = row.layer,
                           .rank = rank,
                           .in = in,
                           .out = place.out()};
    if (row.is_dora) {
      whole.magnitude = toFloats(slice(values, rank * (in + out) + row_begin, {whole.out}, whole.out), target.throttle);
      whole.magnitude_is_normalised = true;
    }
    for (int64_t expert = 0; expert < weights; ++expert) {
      AdapterModule module = whole;
      if (experts > 0) module.expert = expert;
      const TensorView a = slice(values, expert * rank * in, {rank, in}, rank * in);
      const int64_t b_begin = rank * (weights * in + expert * out + row_begin);
      builder.add(std::move(module), a, slice(values, b_begin, {whole.out, rank}, rank * whole.out));
    }
    row_begin += whole.out;
  }
}
}  // namespace

Adapter readTensorAdapter(const TensorView& weights, const TensorView& config, std::shared_ptr<const void> owner,
                          std::string name, const AdapterTarget& target) {
  const auto [rows, longest] = rowsAndColumns(weights, "lora_weights");
  const auto [config_rows, columns] = rowsAndColumns(config, "lora_keys");
  if (config.dtype != DType::kInt32) {
    fail(kInvalid, "Expected  lora keys to have TYPE_INT32 but was {}", dtypeName(config.dtype));
  }
  if (rows != config_rows) fail(kInvalid, "Expected dim1 lora_weights and lora_keys to have the same size");
  if (columns != 3 && columns != 4) fail(kInvalid, "Expected dim2 of lora_keys to have a size in [3, 4]");
  if (!isAdapterDType(weights.dtype) || weights.dtype == DType::kFloat64) {
    fail(kInvalid, "Expected lora weights to be the same data type as base model");
  }

  AdapterBuilder builder(std::move(name), target.throttle);
  builder.keep(std::move(owner));
  std::set<std::pair<int32_t, int32_t>> added;
  for (int64_t i = 0; i < rows; ++i) {
    const ConfigRow row = configRow(config, i, columns);
    addRow(row, slice(weights, i * longest, {longest}, longest), target, added, builder);
  }

  Sha256 hash(target.throttle);
  hash.update(fmt::format("tensors {} {} {} {} ", dtypeName(weights.dtype), rows, longest, columns));
  hash.update(config.bytes);
  hash.update(weights.bytes);
  return builder.finish(hash.hex());
}

}  // namespace chorus
