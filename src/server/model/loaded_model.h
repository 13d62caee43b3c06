// Everything that serves one engine: executor, text, names, adapters, workers.
#pragma once

#include <memory>
#include <string>

#include "server/model/adapter_directory.h"
#include "server/model/adapter_texts.h"
#include "server/model/api_context.h"
#include "server/model/served_engine.h"
#include "server/serve_options.h"

namespace chorus::server {

class LoadedModel {
 public:
  // Loads, registers the adapters and runs one token to see that it works. Throws Error.
  LoadedModel(const ServeOptions& options, const ServedEngine& engine);
  ~LoadedModel();  // as stop()
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  std::shared_ptr<const ApiContext> context() const { return context_; }
  // Looks for new adapters, and for new content of those that are served.
  void refreshAdapters();
  // Model names and a table of memory, several lines.
  std::string summary() const;
  // Ends running requests as cancelled and joins the workers. Idempotent. The object must outlive every exchange.
  void stop();

 private:
  void warmUp();

  std::unique_ptr<executor::Executor> executor_;
  std::unique_ptr<EngineClient> client_;
  std::unique_ptr<ModelCatalog> models_;
  std::unique_ptr<AdapterTexts> texts_;
  std::unique_ptr<AdapterDirectory> adapters_;
  WorkerPool intake_;
  WorkerPool delivery_;
  std::shared_ptr<ApiContext> context_;
};

}  // namespace chorus::server
