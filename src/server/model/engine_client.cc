#include "server/model/engine_client.h"

namespace chorus::server {
namespace {

class ExecutorClient : public EngineClient {
 public:
  explicit ExecutorClient(executor::Executor& executor) : executor_(executor) {}

  std::vector<executor::IdType> enqueue(const std::vector<executor::Request>& requests, Callback callback) override {
    return executor_.enqueueRequests(requests, std::move(callback));
  }
  void cancel(executor::IdType id) override { executor_.cancelRequest(id); }
  void registerAdapter(executor::IdType taskId, executor::AdapterFiles files) override {
    executor_.registerAdapter(taskId, std::move(files));
  }
  executor::AdapterReport inspectAdapter(const executor::AdapterFiles& files) override {
    return executor_.inspectAdapter(files);
  }
  void unregisterAdapter(executor::IdType taskId) override { executor_.unregisterAdapter(taskId); }
  void loadAdapter(executor::IdType taskId, bool pin, executor::Executor::AdapterLoadedCallback loaded) override {
    executor_.loadAdapter(taskId, pin, std::move(loaded));
  }
  void unpinAdapter(executor::IdType taskId) override { executor_.unpinAdapter(taskId); }
  void moveAdapterPin(executor::IdType from, executor::IdType to) override { executor_.moveAdapterPin(from, to); }
  std::optional<executor::AdapterState> adapterState(executor::IdType taskId) override {
    return executor_.getAdapterState(taskId);
  }
  std::vector<executor::AdapterState> adapterStates() override { return executor_.getAdapterStates(); }
  int32_t maxInputLen() const override { return executor_.getMaxInputLen(); }
  int32_t maxSeqLen() const override { return executor_.getMaxSeqLen(); }
  int32_t vocabSize() const override { return executor_.getVocabSize(); }
  executor::LiveBatch liveBatch() const override { return executor_.getLiveBatch(); }

 private:
  executor::Executor& executor_;
};

}  // namespace

std::unique_ptr<EngineClient> makeEngineClient(executor::Executor& executor) {
  return std::make_unique<ExecutorClient>(executor);
}

}  // namespace chorus::server
