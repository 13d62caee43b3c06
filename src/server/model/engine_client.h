// The part of an Executor that the routes use, as an interface, so that they can be tested without an engine.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "chorus/executor.h"

namespace chorus::server {

// Thread-safe. Semantics and exceptions are those of executor::Executor.
class EngineClient {
 public:
  using Callback = executor::Executor::ResponseCallback;

  virtual ~EngineClient() = default;
  virtual std::vector<executor::IdType> enqueue(const std::vector<executor::Request>& requests, Callback callback) = 0;
  virtual void cancel(executor::IdType id) = 0;
  virtual void registerAdapter(executor::IdType taskId, executor::AdapterFiles files) = 0;
  virtual executor::AdapterReport inspectAdapter(const executor::AdapterFiles& files) = 0;
  virtual void unregisterAdapter(executor::IdType taskId) = 0;
  virtual void loadAdapter(executor::IdType taskId, bool pin, executor::Executor::AdapterLoadedCallback loaded) = 0;
  virtual void unpinAdapter(executor::IdType taskId) = 0;
  virtual void moveAdapterPin(executor::IdType from, executor::IdType to) = 0;
  virtual std::optional<executor::AdapterState> adapterState(executor::IdType taskId) = 0;
  virtual std::vector<executor::AdapterState> adapterStates() = 0;
  virtual int32_t maxInputLen() const = 0;
  virtual int32_t maxSeqLen() const = 0;
  virtual int32_t vocabSize() const = 0;
  virtual executor::LiveBatch liveBatch() const = 0;
};

// The executor must outlive the client.
std::unique_ptr<EngineClient> makeEngineClient(executor::Executor& executor);

}  // namespace chorus::server
