#include "server/model/loaded_model.h"

#include <chrono>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "server/model/file_digests.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

executor::ExecutorConfig executorConfig(const ServeOptions& options) {
  executor::ExecutorConfig config;
  executor::PeftCacheConfig adapters;
  adapters.setMaxHostAdapters(options.maxCpuLoras);
  adapters.setMaxDeviceAdapters(options.maxGpuLoras);
  config.setPeftCacheConfig(adapters);
  config.setMaxBatchSize(options.maxBatchSize);
  config.setMaxNumTokens(options.maxNumTokens);
  config.setMaxQueueSize(options.maxQueueSize);
  config.getKvCacheConfigRef().setMaxTokens(options.kvCacheMaxTokens);
  config.getKvCacheConfigRef().setFreeGpuMemoryFraction(options.kvCacheFreeMemoryFraction);
  config.setNumThreads(options.threads);
  config.setBackend(options.backend);
  config.setImportWeightsInBackground(true);
  if (!options.isa.empty()) config.setIsa(options.isa);
  return config;
}

std::string nameFor(const ServeOptions& options, const ServedEngine& engine) {
  if (!options.modelName.empty()) return options.modelName;
  const fs::path named = options.modelDirectory.empty() ? engine.tokenizerDirectory : fs::path(options.modelDirectory);
  fs::path full = fs::absolute(named).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  return full.filename().string();
}

}  // namespace

// One thread reads requests, so that a burst of prompts can't take the cores from the steps; two write answers.
LoadedModel::LoadedModel(const ServeOptions& options, const ServedEngine& engine) : intake_(1), delivery_(2) {
  auto text = loadTextCodec(engine.tokenizerDirectory);
  executor_ = std::make_unique<executor::Executor>(engine.engineDirectory, executor::ModelType::kDECODER_ONLY,
                                                   executorConfig(options));
  client_ = makeEngineClient(*executor_);

  ServedModel base;
  base.name = nameFor(options, engine);
  base.fingerprint = "fp_" + sampledFingerprint(engine.engineDirectory).substr(0, 12);
  base.created = std::time(nullptr);
  base.text = text;
  models_ = std::make_unique<ModelCatalog>(std::move(base));
  if (!options.loraDirectory.empty()) {
    texts_ = std::make_unique<AdapterTexts>(text, engine.tokenizerDirectory, client_->vocabSize());
    const auto loadText = [this](const fs::path& dir) { return texts_->load(dir); };
    adapters_ = std::make_unique<AdapterDirectory>(options.loraDirectory, *models_, *client_, loadText);
    adapters_->scan();
  }
  context_ = std::make_shared<ApiContext>(
      ApiContext{*client_, *models_, intake_, delivery_, readGenerationDefaults(engine.tokenizerDirectory, *text), {}});
  for (const int32_t id : context_->defaults.endIds) {
    if (id < client_->vocabSize()) continue;
    fail(ErrorCode::kInvalidArgument,
         "{}: end token {} is not in the engine's vocabulary of {}; is the tokenizer "
         "that of this model?",
         engine.tokenizerDirectory.string(), id, client_->vocabSize());
  }
  if (options.requestTimeoutSeconds > 0) {
    context_->requestTimeout =
        std::chrono::milliseconds(static_cast<int64_t>(std::ceil(options.requestTimeoutSeconds * 1000)));
  }

  warmUp();
}

LoadedModel::~LoadedModel() {
  stop();
  executor_.reset();  // its loaders call the adapter directory
}

void LoadedModel::warmUp() {
  const executor::Request request({0}, 1);
  const auto id = executor_->enqueueRequest(request);
  for (const executor::Response& response : executor_->awaitResponses(id)) {
    if (response.hasError()) fail(ErrorCode::kInternal, "the first token failed: {}", response.getErrorMsg());
  }
}

void LoadedModel::refreshAdapters() {
  if (!adapters_) return;
  const auto found = adapters_->scan();
  for (const std::string& name : found.added) log::info("new adapter: {}", name);
  for (const std::string& name : found.replaced) log::info("adapter with new content: {}", name);
}

std::string LoadedModel::summary() const {
  const auto models = models_->list();
  std::string names;
  constexpr size_t kMostNames = 20;
  for (size_t i = 1; i < models.size() && i <= kMostNames; ++i) names += (i > 1 ? ", " : "") + models[i]->name;
  if (models.size() > kMostNames + 1) names += fmt::format(" and {} more", models.size() - 1 - kMostNames);
  std::string text =
      fmt::format("  base model  {}\n  adapters    {}\n", models[0]->name, names.empty() ? "none" : names);
  return text + executor_->getMemoryUse().table;
}

void LoadedModel::stop() {
  executor_->shutdown();
  intake_.finish();
  delivery_.finish();
}

}  // namespace chorus::server
