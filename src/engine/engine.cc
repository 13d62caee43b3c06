#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine_layout.h"
#include "models/experts.h"

namespace chorus {
namespace {

constexpr const char* kBuildAgain = "run `chorus build` again";
}  // namespace

EngineConfig readEngineConfig(const std::filesystem::path& dir) {
  const auto config_path = dir / "config.json";
  const Json config = readModelConfigFile(config_path);
  const std::string source = config_path.string();
  if (!config.contains("pretrained_config") || !config.contains("build_config")) {
    fail(ErrorCode::kInvalidArgument, "{}: not an engine's config.json (no pretrained_config and build_config); {}",
         source,
         config.contains("architecture") ? "this is a checkpoint or model: run `chorus build` first" : kBuildAgain);
  }
  EngineConfig engine;
  engine.build = BuildConfig::fromJson(config["build_config"], source + ": build_config");
  if (engine.build.packing_version != kPackingVersion) {
    fail(ErrorCode::kUnsupported, "{}: packing version {}, this build reads {}; {}", source,
         engine.build.packing_version, kPackingVersion, kBuildAgain);
  }
  if (engine.build.backend != "cpu") {
    fail(ErrorCode::kUnsupported, "{}: built for backend '{}', this program runs 'cpu'; {}", source,
         engine.build.backend, kBuildAgain);
  }
  engine.model = ModelConfig::fromJson(config["pretrained_config"], source + ": pretrained_config");
  engine.rank_digests = readRankDigests(config, engine.model.mapping.worldSize(), source);
  return engine;
}

std::shared_ptr<const Engine> Engine::load(const std::filesystem::path& dir, int32_t rank) {
  const std::string source = (dir / "config.json").string();
  EngineConfig config = readEngineConfig(dir);
  auto engine = std::make_shared<Engine>();
  engine->build_ = std::move(config.build);
  engine->config_ = std::move(config.model);
  engine->architecture_ = &architectureOf(engine->config_, source + ": pretrained_config");
  if (const int64_t positions = engine->config_.max_position_embeddings;
      engine->build_.max_seq_len > positions && engine->architecture_->modelSpec(engine->config_).embedding.positions) {
    fail(ErrorCode::kCorrupt, "{}: max_seq_len {} is more than the model's {} learned positions", source,
         engine->build_.max_seq_len, positions);
  }
  if (rank < 0 || rank >= engine->config_.mapping.worldSize()) {
    fail(ErrorCode::kInvalidArgument, "{}: rank {} of an engine with {} ranks", source, rank,
         engine->config_.mapping.worldSize());
  }
  engine->rank_ = rank;

  const auto path = dir / fmt::format("rank{}.engine", rank);
  engine->file_ = MappedFile(path);
  const auto bytes = engine->file_.bytes();
  const std::vector<EngineTensor> tensors = parseEngineFile(bytes, path.string(), engine->packer());
  for (const EngineTensor& tensor : tensors) engine->entries_.emplace(tensor.name, tensor);
  engine->checkComplete();
  const RankDigests& digests = config.rank_digests;
  if (!digests.empty() && digests[static_cast<size_t>(rank)] != rankDigest(bytes, tensors)) {
    fail(ErrorCode::kCorrupt,
         "{}: this file and config.json are of different builds; copy the whole engine again, or {}", path.string(),
         kBuildAgain);
  }
  engine->file_.willNeed();
  return engine;
}

void Engine::checkComplete() const {
  const WeightTable table = architecture_->weightTable(config_);
  const std::vector<RankTensor> tensors = rankTensors(table, config_, rank_);
  for (const EngineTensor& expected : engineLayout(tensors, config_, rank_).tensors) {
    const EngineTensor& tensor = get(expected.name, expected.kind, expected.rows, expected.cols);
    if (tensor.experts != expected.experts) {
      fail(ErrorCode::kCorrupt, "{}: {} has {} experts where the config says {}; {}", file_.path().string(),
           expected.name, tensor.experts, expected.experts, kBuildAgain);
    }
    if (tensor.dtype != expected.dtype) {
      fail(ErrorCode::kCorrupt, "{}: {} is {} where the config says {}; {}", file_.path().string(), expected.name,
           dtypeName(tensor.dtype), dtypeName(expected.dtype), kBuildAgain);
    }
    if (tensor.format() != expected.format()) {
      fail(ErrorCode::kCorrupt,
           "{}: {} has {} scales of groups of {} and {} activations where the config says {}, {} and {}; {}",
           file_.path().string(), expected.name, dtypeName(tensor.scale_dtype), tensor.group,
           inputFormatName(tensor.activations), dtypeName(expected.scale_dtype), expected.group,
           inputFormatName(expected.activations), kBuildAgain);
    }
  }
}

size_t Engine::stepBytes(int64_t rows) const {
  int64_t top_k = 0;
  size_t bytes = 0;
  for (const auto& [name, tensor] : entries_) {
    if (tensor.kind == EngineTensorKind::kTable) continue;
    if (tensor.experts == 0) {
      bytes += tensor.bytes;
      continue;
    }
    if (top_k == 0) top_k = expertsConfig(config_).top_k;
    bytes += tensor.bytes / static_cast<size_t>(tensor.experts) *
             static_cast<size_t>(std::min(tensor.experts, rows * top_k));
  }
  return bytes;
}

const EngineTensor* Engine::find(const std::string& name, EngineTensorKind kind) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return nullptr;
  if (it->second.kind != kind) fail(ErrorCode::kCorrupt, "{}: {} is of another kind", file_.path().string(), name);
  return &it->second;
}

const EngineTensor& Engine::get(const std::string& name, EngineTensorKind kind, int64_t rows, int64_t cols) const {
  const EngineTensor* tensor = find(name, kind);
  if (tensor == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: {} is missing; {}", file_.path().string(), name, kBuildAgain);
  }
  if (tensor->rows != rows || tensor->cols != cols) {
    fail(ErrorCode::kCorrupt, "{}: {} is [{}, {}] where the config needs [{}, {}]; {}", file_.path().string(), name,
         tensor->rows, tensor->cols, rows, cols, kBuildAgain);
  }
  return *tensor;
}

PackedWeight Engine::linear(const std::string& name, int64_t out, int64_t in) const {
  const EngineTensor& tensor = get(name, EngineTensorKind::kLinear, out, in);
  return {file_.bytes().data() + tensor.offset, tensor.format(), tensor.rows, tensor.cols};
}

const float* Engine::vector(const std::string& name, int64_t size) const {
  const EngineTensor& tensor = get(name, EngineTensorKind::kVector, 1, size);
  return reinterpret_cast<const float*>(file_.bytes().data() + tensor.offset);
}

Engine::Table Engine::table(const std::string& name, int64_t rows, int64_t cols) const {
  const EngineTensor& tensor = get(name, EngineTensorKind::kTable, rows, cols);
  return {file_.bytes().data() + tensor.offset, tensor.dtype, tensor.rows, tensor.cols};
}

}  // namespace chorus
