// Maps URL paths to functions. Routes outlives the model: it refuses requests before the model is loaded and while the
// server drains.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "server/access/api_keys.h"
#include "server/access/usage_limits.h"
#include "server/http/http.h"
#include "server/metrics/metrics_answers.h"
#include "server/metrics/server_metrics.h"
#include "server/model/api_context.h"
#include "server/routes/route_table.h"

namespace chorus::server {

class Routes {
 public:
  // has_page: whether "/" answers with the page for browsers (src/server/page/page.h).
  // limits: on what clients and adapters use; null: none.
  explicit Routes(bool has_page = true, std::shared_ptr<ServerMetrics> metrics = std::make_shared<ServerMetrics>(),
                  std::shared_ptr<UsageLimits> limits = nullptr)
      : has_page_(has_page), metrics_(std::move(metrics)), limits_(std::move(limits)), metrics_answers_(metrics_) {}

  // The HttpHandler: answers at once, or submits the work to the context's intake.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);

  // Limit on the body of a request with this head: `usual`, or a larger one if it uploads an adapter and may do so.
  size_t bodyLimit(const HttpRequest& head, size_t usual) const;

  // The model is loaded: from now on requests are served. What the context refers to must live until the last request
  // has ended.
  void serve(std::shared_ptr<const ApiContext> context);
  // From now on requests need one of these keys. clients: each key is one client of this registry; null: clients stay
  // the addresses.
  void requireKeys(std::shared_ptr<const ApiKeys> keys, std::shared_ptr<ClientRegistry> clients);
  // From now on the server is not ready, so that proxies send no more requests. Those that arrive are still served.
  void leave() { leaving_ = true; }
  // From now on new work is refused with status 503, the metrics included.
  void drain();

 private:
  void dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange);
  // Sets the request's key, client and usage. Throws ApiError (401, 403, 429).
  void authorize(HttpRequest& request, Access needed) const;
  // Throws ApiError (503) while loading or draining.
  std::shared_ptr<const ApiContext> readyContext() const;

  const bool has_page_;
  const std::shared_ptr<ServerMetrics> metrics_;
  const std::shared_ptr<UsageLimits> limits_;
  mutable std::mutex mutex_;  // guards the three members below
  std::shared_ptr<const ApiContext> context_;
  std::shared_ptr<const ApiKeys> keys_;  // null: none are needed
  std::shared_ptr<ClientRegistry> clients_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> draining_{false};
  MetricsAnswers metrics_answers_;
};

}  // namespace chorus::server
