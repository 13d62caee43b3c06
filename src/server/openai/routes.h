// Which path does what. The one object that outlives the model: before it is loaded, and while draining, it refuses.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Prepares a request on an intake thread and begins to answer it; throws ApiError while nothing was sent.
using RequestWork = void (*)(const ApiContext& context, HttpRequest& request,
                             const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter);

class Routes {
 public:
  // An HttpHandler: answers, or hands the work to the context's intake.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  // Loaded: from now on requests are served. The context's parts live until the last request has ended.
  void serve(std::shared_ptr<const ApiContext> context);
  // From now on new work is refused with status 503.
  void drain() { draining_ = true; }

 private:
  void dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange);
  static void startIntake(const std::shared_ptr<const ApiContext>& context, RequestWork work, HttpRequest request,
                          const std::shared_ptr<HttpExchange>& exchange);
  // Throws ApiError (503) while loading or draining.
  std::shared_ptr<const ApiContext> readyContext() const;

  mutable std::mutex mutex_;  // guards context_
  std::shared_ptr<const ApiContext> context_;
  std::atomic<bool> draining_{false};
};

}  // namespace chorus::server
