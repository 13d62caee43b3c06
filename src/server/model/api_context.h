// What the routes work with once the model is loaded.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "server/model/cache_salts.h"
#include "server/model/engine_client.h"
#include "server/model/generation_defaults.h"
#include "server/model/model_catalog.h"
#include "server/work/intake.h"
#include "server/work/worker_pool.h"

namespace chorus::server {

// The referenced parts outlive every request: the executor is shut down and the workers are joined before they go.
struct ApiContext {
  EngineClient& engine;
  ModelCatalog& models;
  Intake& intake;        // parsing, templates, tokenizing
  WorkerPool& delivery;  // detokenizing and writing answers
  GenerationDefaults defaults;
  std::optional<std::chrono::milliseconds> requestTimeout;  // from when a request is complete
  bool trust_request_templates = false;                     // a request may bring the text of a chat template
  int32_t maxChoices = 16;                                  // sequences of one request
  CacheSalts cacheSalts;
};

}  // namespace chorus::server
