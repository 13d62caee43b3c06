#include "checkpoint/reader.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/names.h"
#include "checkpoint/writer.h"

namespace chorus {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "transformer.vocab_embedding.weight";

// Whether the output head is the embedding table is a fact of the files: some converters write a copy, and configs
// do not always say.
void detectTying(ModelConfig& config, const Safetensors& only_stage) {
  const bool head = only_stage.find(kHead) != nullptr;
  if (head) {
    config.tie_word_embeddings = false;
  } else if (only_stage.find(kEmbedding) != nullptr) {
    config.tie_word_embeddings = true;
  }
}
}  // namespace

const TensorView& RankWeights::get(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) fail(ErrorCode::kCorrupt, "{}: tensor '{}' is missing", file_.source(), name);
  return *tensor;
}

CheckpointReader CheckpointReader::open(const std::filesystem::path& dir) {
  CheckpointReader reader;
  const auto config_path = dir / "config.json";
  reader.config_ = ModelConfig::fromJson(readJsonFile(config_path), config_path.string());
  const QuantConfig& quant = reader.config_.quantization;
  for (const auto& [key, value] :
       {std::pair("quant_algo", quant.quant_algo), std::pair("kv_cache_quant_algo", quant.kv_cache_quant_algo)}) {
    if (value) {
      fail(ErrorCode::kUnsupported, "{}: quantization.{} '{}' is not supported; convert the model without it",
           config_path.string(), key, *value);
    }
  }
  for (int32_t rank = 0; rank < reader.config_.mapping.worldSize(); ++rank) {
    const auto path = dir / rankFileName(rank);
    if (!std::filesystem::exists(path)) {
      fail(ErrorCode::kNotFound, "{}: missing; config.json's mapping asks for {} rank files", path.string(),
           reader.config_.mapping.worldSize());
    }
    reader.files_.push_back(Safetensors::open(path));
  }
  if (reader.config_.mapping.pp_size == 1) detectTying(reader.config_, reader.files_.front());
  return reader;
}

RankWeights CheckpointReader::rank(int32_t rank, const WeightTable& table, std::span<const std::string> ignored) const {
  const Safetensors& file = files_.at(static_cast<size_t>(rank));
  std::vector<RankTensor> tensors = rankTensors(table, config_, rank);
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  for (const RankTensor& tensor : tensors) {
    expected.insert(tensor.name);
    const TensorView* view = file.find(tensor.name);
    if (view == nullptr) {
      missing.push_back(tensor.name);
    } else if (view->shape != tensor.shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, config.json asks for {}", file.source(), tensor.name,
           shapeText(view->shape), shapeText(tensor.shape));
    } else if (view->dtype != tensor.dtype) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' is {}, config.json asks for {}", file.source(), tensor.name,
           dtypeName(view->dtype), dtypeName(tensor.dtype));
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
         "{}: Provided but not required tensors: {}; the weights are of another model than config.json", file.source(),
         listSome(unexpected));
  }
  return {file, std::move(tensors)};
}

}  // namespace chorus
