// Everything that serves one engine: executor, tokenizers, model names, adapters, workers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/model/adapter_directory.h"
#include "server/model/adapter_texts.h"
#include "server/model/api_context.h"
#include "server/model/served_engine.h"
#include "server/serve_options.h"

namespace chorus::server {

class LoadedModel {
 public:
  // Loads the engine, registers the adapters, and generates one token as a check. Throws Error.
  LoadedModel(const ServeOptions& options, const ServedEngine& engine);
  ~LoadedModel();  // calls stop()
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  std::shared_ptr<const ApiContext> context() const { return context_; }
  // Model names and a table of memory, in several lines.
  std::string summary() const;
  // Looks for new, changed and removed adapters soon, whatever the interval is. Does not wait for it. Thread-safe.
  void rescanAdapters();
  // Ends the waits for tokenizers that have lasted too long. Call it often, on a thread that reads no tenant's files.
  // Thread-safe.
  void endLongWaits();
  // Cancels running requests and joins the workers. Idempotent. The object must outlive every exchange. Returns false
  // if a worker did not end within a second: this object and what it refers to must then stay alive.
  bool stop();

 private:
  // Registers the adapters in the directories. What `limit` leaves is registered by refreshAdapters(), so that no
  // tenant's files keep the server from becoming ready.
  void registerAdapters(std::chrono::milliseconds limit);
  void warmUp();
  // Registers the adapters that the start left out, reads the tokenizer files that the start or a load left out, and
  // scans for new, changed and removed adapters at each interval (0: never) and at each call of rescanAdapters(), until
  // stop(). Runs on a thread of its own, so that neither the start nor a signal waits for a tenant's files.
  void refreshAdapters(std::chrono::seconds interval);
  // Sets one of the flags of refresh_ and notifies it.
  void wake(std::atomic<bool>& why);

  std::unique_ptr<executor::Executor> executor_;
  std::unique_ptr<EngineClient> client_;
  std::unique_ptr<ModelCatalog> models_;
  std::unique_ptr<AdapterTexts> texts_;
  std::unique_ptr<AdapterDirectory> adapters_;
  Intake intake_, adapter_intake_, list_intake_;  // see ApiContext
  WorkerPool delivery_;
  int32_t http_memory_mib_;
  size_t connections_;  // most at once
  bool tls_;
  std::shared_ptr<ApiContext> context_;
  std::mutex wake_mutex_;
  std::condition_variable wake_;  // notifies refresh_ of the three flags below, which are set under wake_mutex_
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> rescan_ = false;
  std::atomic<bool> texts_left_ = false;  // a load left a text to readTexts()
  std::thread refresh_;
  std::future<void> refresh_ended_;  // valid while refresh_ is joinable
};

}  // namespace chorus::server
