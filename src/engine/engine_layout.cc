#include "engine/engine_layout.h"

#include <algorithm>
#include <unordered_map>

#include "base/checked.h"
#include "base/error.h"

namespace chorus {
namespace {

bool endsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::string replaceTail(const std::string& name, std::string_view tail, std::string_view with) {
  return name.substr(0, name.size() - tail.size()).append(with);
}

// The weight that scales belong to, as far as its place goes.
RankTensor weightOf(const RankTensor& scales) {
  RankTensor weight = scales;
  weight.name = scales.name.substr(0, scales.name.rfind('.')) + ".weight";
  weight.shape = {scales.shape[0]};
  weight.part = TensorPart::kValues;
  return weight;
}
}  // namespace

EnginePlacement placeInEngine(const RankTensor& tensor) {
  if (tensor.part == TensorPart::kScales) return placeInEngine(weightOf(tensor));
  const std::string& name = tensor.name;
  // The gated MLP's two halves are one linear, the activated one first.
  if (endsWith(name, "mlp.fc.weight")) {
    return {replaceTail(name, "mlp.fc.weight", "mlp.fc_gate"), EngineTensorKind::kLinear, 0};
  }
  if (endsWith(name, "mlp.gate.weight")) {
    return {replaceTail(name, "mlp.gate.weight", "mlp.fc_gate"), EngineTensorKind::kLinear, tensor.rows()};
  }
  if (endsWith(name, "mlp.fc.bias")) {
    return {replaceTail(name, "mlp.fc.bias", "mlp.fc_gate.bias"), EngineTensorKind::kVector, 0};
  }
  if (endsWith(name, "mlp.gate.bias")) {
    return {replaceTail(name, "mlp.gate.bias", "mlp.fc_gate.bias"), EngineTensorKind::kVector, tensor.shape[0]};
  }
  const std::string stem = endsWith(name, ".weight") ? replaceTail(name, ".weight", "") : name;
  switch (tensor.row->role) {
    case WeightRole::kEmbedding:
      return {stem, EngineTensorKind::kTable, 0};
    case WeightRole::kLinear:
    case WeightRole::kLmHead:
      return {stem, EngineTensorKind::kLinear, 0};
    case WeightRole::kBias:
    case WeightRole::kNorm:
      return {stem, EngineTensorKind::kVector, 0};
  }
  return {stem, EngineTensorKind::kVector, 0};
}

int64_t vocabularyShare(const ModelConfig& config) {
  const int32_t tp = config.mapping.tp_size;
  return (config.vocab_size + tp - 1) / tp;
}

TiedHead tiedHead(const ModelConfig& config, int32_t rank) {
  const int64_t share = vocabularyShare(config);
  // A table that is cut along the vocabulary is the rank's share already, its padding zeros.
  if (config.use_parallel_embedding) return {0, share};
  const int64_t begin = std::min(config.mapping.tpRank(rank) * share, config.vocab_size);
  return {begin, std::min(share, config.vocab_size - begin)};
}

std::vector<EngineTensor> engineTensors(const std::vector<RankTensor>& tensors, const ModelConfig& config) {
  std::vector<EngineTensor> result;
  std::unordered_map<std::string, size_t> index;
  const auto add = [&](const std::string& name, EngineTensorKind kind, const WeightFormat& format, int64_t rows,
                       int64_t cols) {
    const auto [it, is_new] = index.emplace(name, result.size());
    if (is_new) {
      result.push_back({.name = name,
                        .kind = kind,
                        .dtype = format.dtype,
                        .rows = rows,
                        .cols = cols,
                        .group = format.group,
                        .scale_dtype = format.scale_dtype});
    } else if (result[it->second].format() != format) {
      fail(ErrorCode::kUnsupported, "{}: its parts are quantised differently; exclude_modules must take all or none",
           name);
    } else if (kind == EngineTensorKind::kVector) {
      result[it->second].cols += cols;
    } else {
      result[it->second].rows += rows;
    }
  };
  const RankTensor* embedding = nullptr;  // of a model that ties: of one stage, so that every rank has it
  for (const RankTensor& tensor : tensors) {
    if (tensor.part == TensorPart::kScales) continue;
    const EnginePlacement place = placeInEngine(tensor);
    const bool vector = place.kind == EngineTensorKind::kVector;
    const WeightFormat format = tensor.part == TensorPart::kIntegers ? tensor.format : WeightFormat(tensor.dtype);
    add(place.name, place.kind, vector ? DType::kFloat32 : format, vector ? 1 : tensor.rows(),
        vector ? tensor.shape[0] : tensor.shape[1]);
    if (tensor.row->role == WeightRole::kEmbedding) embedding = &tensor;
  }
  if (embedding != nullptr && sharesEmbedding(config)) {
    add("lm_head", EngineTensorKind::kLinear, embedding->dtype, vocabularyShare(config), config.hidden_size);
  }
  return result;
}

uint64_t packedWeightBytes(const WeightTable& table, const ModelConfig& config, int32_t rank) {
  uint64_t bytes = 0;
  for (const EngineTensor& tensor : engineTensors(rankTensors(table, config, rank), config)) {
    bytes = checkedAdd(bytes, tensorBytes(tensor), "the engine");
  }
  return bytes;
}

std::optional<LinearPlace> linearPlace(const WeightRow& row, int64_t rank_rows) {
  if (endsWith(row.name, "attention.qkv.weight")) return LinearPlace{LinearId::kQkv, 0};
  if (endsWith(row.name, "attention.dense.weight")) return LinearPlace{LinearId::kDense, 0};
  if (endsWith(row.name, "mlp.fc.weight")) return LinearPlace{LinearId::kFcGate, 0};
  if (endsWith(row.name, "mlp.gate.weight")) return LinearPlace{LinearId::kFcGate, rank_rows};
  if (endsWith(row.name, "mlp.proj.weight")) return LinearPlace{LinearId::kProj, 0};
  return std::nullopt;
}

}  // namespace chorus
