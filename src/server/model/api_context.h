// What the routes work with once the model is loaded.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "server/http/worker_pool.h"
#include "server/model/engine_client.h"
#include "server/model/generation_defaults.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// The referenced parts outlive every request: the executor is shut down and the workers are joined before they go.
struct ApiContext {
  EngineClient& engine;
  ModelCatalog& models;
  WorkerPool& intake;    // parsing, templates, tokenizing: a large prompt here does not hold up streams
  WorkerPool& delivery;  // detokenizing and writing answers
  GenerationDefaults defaults;
  std::optional<std::chrono::milliseconds> requestTimeout;
};

}  // namespace chorus::server
