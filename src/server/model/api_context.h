// Everything that the routes need once the model is loaded.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "server/access/fair_share.h"
#include "server/model/adapter_directory.h"
#include "server/model/cache_salts.h"
#include "server/model/engine_client.h"
#include "server/model/model_catalog.h"
#include "server/work/intake.h"
#include "server/work/worker_pool.h"
#include "text/generation_defaults.h"

namespace chorus::server {

// Limit on the time for which a request of ApiContext::adapter_intake reads an adapter.
inline constexpr std::chrono::seconds kAdapterReadTime{120};

// The referenced objects outlive every request: they are destroyed after the executor is shut down and the workers are
// joined.
struct ApiContext {
  EngineClient& engine;
  ModelCatalog& models;
  Intake& intake;          // parsing, templates, tokenizing
  Intake& adapter_intake;  // the requests that read, register or remove adapters
  Intake& list_intake;     // answers that grow with the number of models
  WorkerPool& delivery;    // detokenizing and writing answers
  GenerationDefaults defaults;
  std::optional<std::chrono::milliseconds> request_timeout;  // from the moment a request is completely received
  std::optional<std::chrono::milliseconds> queue_timeout;    // the same, until a request begins to run
  FairBy fair_by = FairBy::kTurns;
  bool trust_request_templates = false;  // a request may contain the text of a chat template
  int32_t max_choices = 16;              // limit on the sequences of one request
  CacheSalts cache_salts;
  AdapterDirectory* adapters = nullptr;         // for the admin routes; null: they are refused
  size_t max_upload_bytes = size_t{256} << 20;  // of one uploaded adapter
};

}  // namespace chorus::server
