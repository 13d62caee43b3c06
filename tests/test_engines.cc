#include "test_engines.h"

#include <stdlib.h>

#include <map>
#include <system_error>

#include "base/error.h"
#include "convert/huggingface.h"
#include "engine/build.h"
#include "lora/source_peft.h"

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

std::filesystem::path testEngine(const std::filesystem::path& model_dir, DType dtype, const BuildConfig& config) {
  static const TempDir kDirectory;
  static std::map<std::string, std::filesystem::path> checkpoints, engines;
  const std::string checkpoint_key = model_dir.string() + std::string(dtypeName(dtype));
  auto& checkpoint = checkpoints[checkpoint_key];
  if (checkpoint.empty()) {
    checkpoint = kDirectory.path() / ("checkpoint" + std::to_string(checkpoints.size()));
    convertHuggingFace(model_dir, checkpoint, {.dtype = dtype, .workers = 1});
  }
  auto& engine = engines[checkpoint_key + config.toJson().dump()];
  if (engine.empty()) {
    engine = kDirectory.path() / ("engine" + std::to_string(engines.size()));
    buildEngine(checkpoint, engine, config, 1);
  }
  return engine;
}

Adapter readTestAdapter(const std::filesystem::path& dir, const Engine& engine) {
  const WeightTable table = engine.architecture().weightTable(engine.config());
  return readPeftAdapter(dir, dir.filename().string(),
                         {.config = engine.config(), .table = table, .max_rank = engine.buildConfig().max_lora_rank});
}

}  // namespace chorus::test
