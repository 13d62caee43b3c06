#include "checkpoint/reader.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/writer.h"

namespace chorus {
namespace {

const TensorView* findTensor(const Safetensors& file, std::string_view name) {
  const TensorView* tensor = file.find(name);
  if (tensor != nullptr) return tensor;
  const auto older = olderName(name);
  return older ? file.find(*older) : nullptr;
}

// Sets tie_word_embeddings from the files rather than the config: some converters write the head as a copy of the
// embedding table, and configs do not always have the field. Where sharesEmbedding() is false for a tied model (ranks
// hold columns of the table), a head in the file is required and does not make the model untied.
void detectTying(ModelConfig& config, const Safetensors& only_stage) {
  const bool head = only_stage.find(kHeadTensor) != nullptr;
  if (head) {
    if (sharesEmbedding(config)) config.tie_word_embeddings = false;
  } else if (findTensor(only_stage, kEmbeddingTensor) != nullptr) {
    config.tie_word_embeddings = true;
  }
}

// Checks the group size against the shape of the scales, and sets it to 0 when there is one scale per output: many
// configs have a group size in that case too.
void detectGroups(ModelConfig& config, const Safetensors& file, std::string_view config_source) {
  bool per_channel = false;
  std::optional<int64_t> group;
  for (const std::string& name : file.names()) {
    const auto weight = weightOfScales(name);
    if (!weight) continue;
    per_channel |= !weight->grouped;
    if (group || !weight->grouped) continue;
    const TensorView* scales = file.find(name);
    const TensorView* integers = file.find(weight->name);
    if (integers == nullptr || integers->shape.size() != 2 || scales->shape.size() != 2 || scales->shape[1] == 0)
      continue;
    group = integers->shape[1] / scales->shape[1];
  }
  if (group && *group != config.quantization.group_size) {
    fail(ErrorCode::kCorrupt, "{}: quantization.group_size is {} where {} has scales of groups of {}", config_source,
         config.quantization.group_size, file.source(), *group);
  }
  if (!group && per_channel) config.quantization.group_size = 0;
}

// Whether a file's tensor may have this dtype: the dtype that we write, or an equivalent one that other converters use.
bool isReadable(const RankTensor& tensor, DType dtype) {
  switch (tensor.role) {
    case TensorRole::kValues:
      return dtype == tensor.dtype;
    case TensorRole::kIntegers:
      return dtype == tensor.dtype || (tensor.format.dtype == DType::kInt4 && dtype == DType::kUint8);
    case TensorRole::kScales:
      return dtype == tensor.dtype || dtype == DType::kFloat32;
  }
  return false;
}
}  // namespace

const TensorView* RankWeights::find(std::string_view name) const { return findTensor(file_, name); }

const TensorView& RankWeights::get(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) fail(ErrorCode::kCorrupt, "{}: tensor '{}' is missing", file_.source(), name);
  return *tensor;
}

CheckpointReader CheckpointReader::open(const std::filesystem::path& dir) {
  CheckpointReader reader;
  const auto config_path = dir / "config.json";
  const Json config = readModelConfigFile(config_path);
  if (config.is_object() && !config.contains("architecture") &&
      (config.contains("architectures") || config.contains("model_type"))) {
    fail(ErrorCode::kInvalidArgument,
         "{}: not a checkpoint's config.json; this is a Hugging Face model: run `chorus convert` first",
         config_path.string());
  }
  reader.config_ = ModelConfig::fromJson(config, config_path.string());
  if (const auto& algo = reader.config_.quantization.kv_cache_quant_algo) {
    fail(ErrorCode::kUnsupported,
         "{}: quantization.kv_cache_quant_algo '{}' is not supported; convert the model without it",
         config_path.string(), *algo);
  }
  checkQuantisation(reader.config_, config_path.string());
  for (int32_t rank = 0; rank < reader.config_.mapping.worldSize(); ++rank) {
    const auto path = dir / rankFileName(rank);
    if (!std::filesystem::exists(path)) {
      fail(ErrorCode::kNotFound, "{}: missing; config.json's mapping asks for {} rank files", path.string(),
           reader.config_.mapping.worldSize());
    }
    reader.files_.push_back(Safetensors::open(path));
  }
  if (reader.config_.quantization.quant_algo) detectGroups(reader.config_, reader.files_.front(), config_path.string());
  if (reader.config_.mapping.pp_size == 1) detectTying(reader.config_, reader.files_.front());
  return reader;
}

RankWeights CheckpointReader::rank(int32_t rank, const WeightTable& table, std::span<const std::string> ignored) const {
  const Safetensors& file = files_.at(static_cast<size_t>(rank));
  std::vector<RankTensor> tensors = rankTensors(table, config_, rank);
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  for (RankTensor& tensor : tensors) {
    expected.insert(tensor.name);
    if (const auto older = olderName(tensor.name); older && file.find(tensor.name) == nullptr) expected.insert(*older);
    const TensorView* view = findTensor(file, tensor.name);
    if (view == nullptr) {
      missing.push_back(tensor.name);
    } else if (view->shape != tensor.shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, config.json asks for {}", file.source(), tensor.name,
           shapeText(view->shape), shapeText(tensor.shape));
    } else if (!isReadable(tensor, view->dtype)) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' is {}, config.json asks for {}", file.source(), tensor.name,
           dtypeName(view->dtype), dtypeName(tensor.dtype));
    } else {
      tensor.dtype = view->dtype;
    }
  }
  if (!missing.empty()) {
    fail(ErrorCode::kCorrupt, "{}: Required but not provided tensors: {}", file.source(), listSome(missing));
  }
  for (const std::string& name : file.names()) {
    if (!expected.contains(name) && !matchesAny(ignored, name)) unexpected.push_back(name);
  }
  if (!unexpected.empty()) {
    fail(ErrorCode::kCorrupt,
         "{}: Provided but not required tensors: {}; the weights and config.json are of different models",
         file.source(), listSome(unexpected));
  }
  return {file, std::move(tensors)};
}

}  // namespace chorus
