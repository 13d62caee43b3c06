#include "convert/sources/source_model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "convert/tensor_copy.h"
#include "models/architecture.h"

namespace chorus {

bool haveEqualValues(const SourceTensor& a, const SourceTensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const size_t row_bytes = static_cast<size_t>(a.cols()) * dtypeSize(a.dtype());
  const auto rows = static_cast<int64_t>((size_t{1} << 20) / std::max<size_t>(row_bytes, 1) + 1);
  std::vector<std::byte> from_a(static_cast<size_t>(rows) * row_bytes), from_b(from_a.size());
  for (int64_t row = 0; row < a.rows(); row += rows) {
    const Rectangle part = {row, 0, std::min(rows, a.rows() - row), a.cols()};
    a.read(part, from_a.data());
    b.read(part, from_b.data());
    if (std::memcmp(from_a.data(), from_b.data(), static_cast<size_t>(part.rows) * row_bytes) != 0) return false;
  }
  return true;
}

void applyOptions(const ConvertOptions& options, ModelConfig& config, std::string_view where) {
  config.mapping = {options.tp_size, options.pp_size};
  config.use_parallel_embedding = options.use_parallel_embedding;
  config.embedding_sharding_dim = options.embedding_sharding_dim;
  config.finalize(where);
  architectureOf(config, where);
  if (const auto& quantise = options.quantise) {
    if (quantise->quantise_head && sharesEmbedding(config)) {
      fail(ErrorCode::kUnsupported,
           "--quantize_lm_head: the model's output head is its embedding table, which stays {}",
           dtypeName(config.dtype));
    }
    setQuantisation(config, quantise->bits, quantise->group_size, quantise->quantise_head);
  }
}

void checkSources(const SourceModel& model, std::span<const std::string> ignored, std::string_view where,
                  std::string_view config_name) {
  const SourceTensors& tensors = model.tensors;
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  const auto check = [&](const WeightRow& row, const WeightSource& source, const std::string& name) {
    expected.insert(name);
    const SourceTensor* tensor = tensors.find(name);
    if (tensor == nullptr) {
      missing.push_back(name);
      return;
    }
    const std::vector<int64_t> shape = sourceShape(row, source);
    if (tensor->shape() != shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, {} asks for {}", tensors.fileOf(name), name,
           shapeText(tensor->shape()), config_name, shapeText(shape));
    }
    if (!isConvertible(tensor->dtype())) {
      fail(ErrorCode::kUnsupported, "{}: tensor '{}' is {}; only unquantised weights are converted",
           tensors.fileOf(name), name, dtypeName(tensor->dtype()));
    }
  };
  for (const WeightRow& row : model.table) {
    const int32_t layers = row.stage == Stage::kEveryLayer ? model.config.num_hidden_layers : 1;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (!row.isInLayer(layer)) continue;
      for (const WeightSource* source : sourcesOf(row, model.format)) {
        const std::string name = layerName(source->name, layer);
        const int64_t names = namesExpert(name) ? row.experts : 1;
        for (int64_t expert = 0; expert < names; ++expert) check(row, *source, expertName(name, expert));
      }
    }
  }
  if (!missing.empty()) {
    fail(ErrorCode::kCorrupt, "{}: Required but not provided tensors: {}", where, listSome(missing));
  }
  for (const std::string& name : tensors.names()) {
    if (!expected.contains(name) && !matchesAny(ignored, name)) unexpected.push_back(name);
  }
  if (!unexpected.empty()) {
    fail(ErrorCode::kCorrupt, "{}: tensors that {} does not have: {}; the weights and {} are of different models",
         where, model.config.architecture, listSome(unexpected), config_name);
  }
}

}  // namespace chorus
