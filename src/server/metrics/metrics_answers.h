// Answers the requests for the metrics.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "server/errors.h"
#include "server/http/http.h"
#include "server/metrics/server_metrics.h"
#include "server/work/worker_pool.h"

namespace chorus::server {

// Makes the text on a thread of its own. An I/O thread would hold up its connections, and the intake has no room when
// the metrics are needed most. Thread-safe.
class MetricsAnswers {
 public:
  explicit MetricsAnswers(std::shared_ptr<ServerMetrics> metrics);

  // The model is loaded: later texts have the metrics of its engine.
  void serve(std::shared_ptr<const ApiContext> context);
  // Answers with a text that is begun after this call. All requests that wait then share it. Throws ApiError (503)
  // after finish().
  void answer(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange);
  // Answers the requests that wait, and no further ones. Afterwards the context is not used any more. Idempotent.
  void finish();

 private:
  struct Waiting {
    std::shared_ptr<HttpExchange> exchange;
    std::shared_ptr<Client> client;
    ErrorForm form;
  };
  void answerAll();

  const std::shared_ptr<ServerMetrics> metrics_;
  std::mutex mutex_;  // guards the three members below
  std::shared_ptr<const ApiContext> context_;
  std::vector<Waiting> waiting_;
  bool finished_ = false;
  std::chrono::steady_clock::time_point rest_until_{};  // of the worker's thread
  WorkerPool worker_;                                   // last, because its thread uses the others
};

}  // namespace chorus::server
