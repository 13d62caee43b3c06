// The metrics of a server, and their text in Prometheus's format. docs/metrics.md has the meaning of each.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "server/access/limit_counters.h"
#include "server/http/http.h"
#include "server/metrics/access_log.h"
#include "server/metrics/request_counters.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Thread-safe.
class ServerMetrics {
 public:
  struct Options {
    size_t max_adapters = 256;              // names with series of their own; the others share kOther
    std::shared_ptr<AccessLog> access_log;  // null: none is written
    std::shared_ptr<const HttpCounters> http = std::make_shared<HttpCounters>();
    std::shared_ptr<const LimitCounters> limits = std::make_shared<LimitCounters>();
  };
  static constexpr std::string_view kOther = "other";

  ServerMetrics();
  explicit ServerMetrics(Options options);

  RequestCounters& requests() { return requests_; }
  // The counters of the model's name; those of kOther for a composition, for a name that is no longer in the catalog,
  // and beyond max_adapters names.
  std::shared_ptr<ModelCounters> countersOf(const ServedModel& model, const ModelCatalog& models);
  // Counts an answered request and writes its access line.
  void countAnswer(const AccessLine& line);
  // Counts the answer to a request that reached no route.
  void countUnrouted(const UnroutedAnswer& answer);

  // context: null while the model loads; the metrics of the engine are left out then. Ends the series of removed
  // adapters.
  std::string text(const ApiContext* context);

 private:
  using Models = std::map<std::string, std::shared_ptr<ModelCounters>, std::less<>>;
  using Answers = std::map<std::tuple<std::string_view, std::string, int>, uint64_t>;  // by route, method and status
  void dropRemoved(const ModelCatalog& models);

  const Options options_;
  RequestCounters requests_;
  mutable std::mutex mutex_;  // guards what follows; locked once per request, never per token
  Models models_;
  const std::shared_ptr<ModelCounters> other_ = std::make_shared<ModelCounters>();
  bool other_used_ = false;
  Answers answers_;
  uint64_t disconnects_ = 0;
};

// The content type of text().
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace chorus::server
