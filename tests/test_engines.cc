#include "test_engines.h"

#include <stdlib.h>

#include <map>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "engine/build.h"
#include "lora/adapter_files.h"

namespace chorus::test {

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "chorus_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) fail(ErrorCode::kExhausted, "{}: cannot make a temporary directory", name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

BuildConfig testBuildConfig() {
  BuildConfig config;
  config.max_batch_size = 32;
  config.lora_plugin = true;
  config.dora_plugin = true;
  return config;
}

std::string Cut::name() const {
  std::string name = "tp" + std::to_string(tp_size) + "_pp" + std::to_string(pp_size);
  if (use_parallel_embedding) name += "_embedding" + std::to_string(embedding_sharding_dim);
  return name;
}

std::optional<QuantiseOptions> goldenQuantisation(const std::filesystem::path& model_dir) {
  const auto path = model_dir / "case.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json json = readJsonFile(path);
  if (!json.contains("quantise")) return std::nullopt;
  const Json& quantise = json.at("quantise");
  return QuantiseOptions{.bits = quantise.at("bits").get<int32_t>(),
                         .group_size = quantise.at("group_size").get<int32_t>(),
                         .quantise_head = quantise.at("head").get<bool>()};
}

std::filesystem::path testEngine(const std::filesystem::path& model_dir, DType dtype, const BuildConfig& config,
                                 const Cut& cut) {
  static const TempDir kDirectory;
  static std::map<std::string, std::filesystem::path> checkpoints, engines;
  const std::string checkpoint_key = model_dir.string() + std::string(dtypeName(dtype)) + cut.name();
  auto& checkpoint = checkpoints[checkpoint_key];
  if (checkpoint.empty()) {
    const auto target = kDirectory.path() / ("checkpoint" + std::to_string(checkpoints.size()));
    convertModel(model_dir, target,
                 {.dtype = dtype,
                  .tp_size = cut.tp_size,
                  .pp_size = cut.pp_size,
                  .use_parallel_embedding = cut.use_parallel_embedding,
                  .embedding_sharding_dim = cut.embedding_sharding_dim,
                  .quantise = goldenQuantisation(model_dir),
                  .workers = 1});
    checkpoint = target;
  }
  auto& engine = engines[checkpoint_key + config.toJson().dump()];
  if (engine.empty()) {
    engine = kDirectory.path() / ("engine" + std::to_string(engines.size()));
    buildEngine(checkpoint, engine, config, 1);
  }
  return engine;
}

std::string testEngineRefusal(const std::filesystem::path& model_dir, DType dtype, const BuildConfig& config,
                              const Cut& cut) {
  try {
    testEngine(model_dir, dtype, config, cut);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Adapter readTestAdapter(const std::filesystem::path& dir, const Engine& engine) {
  const WeightTable table = engine.architecture().weightTable(engine.config());
  return readAdapter(dir, dir.filename().string(),
                     {.config = engine.config(),
                      .table = table,
                      .max_rank = engine.buildConfig().max_lora_rank,
                      .left_out = engine.architecture().left_out});
}

}  // namespace chorus::test
