// A record of one HTTP request, for metrics and the access log. Routes begins a record, the generation and the
// exchange add to it. Each part is counted before the client can see the answer, so that a client that reads the
// metrics next finds its request there.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chorus/response.h"
#include "server/http/http.h"
#include "server/metrics/access_log.h"
#include "server/metrics/request_counters.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

class ServerMetrics;

// Thread-safe.
class RequestRecord {
 public:
  using Clock = std::chrono::steady_clock;

  // route: the path of the route table, or empty if no route has the path. It must outlive the record.
  RequestRecord(std::shared_ptr<ServerMetrics> metrics, const HttpRequest& request, std::string_view route);

  // The engine has accepted the request's choices. prompts: the number of tokens of each choice's prompt.
  // prompt_tokens: tokens of the prompts, each prompt once. max_tokens: 0 if not asked for.
  void accepted(const ServedModel& model, const ModelCatalog& models, std::vector<int32_t> prompts,
                int64_t prompt_tokens, int32_t max_tokens);
  // `tokens` generated tokens of a choice arrived with `result`.
  void arrived(size_t choice, size_t tokens, const executor::Result& result);
  // A choice ended. Later calls for the choice do nothing.
  void finished(size_t choice, Outcome outcome);
  // All choices that have not ended end.
  void finishedAll(Outcome outcome);

  // The request is answered, or its client has disconnected. Only the first call counts. bytes: of the answer's body.
  void answered(int status, uint64_t bytes, bool disconnected);

 private:
  struct Choice {
    int32_t prompt_tokens = 0;
    uint64_t tokens = 0;
    Clock::time_point first, last;  // tokens
    std::optional<executor::RequestPerfMetrics::TimingMetrics> timing;
    bool ended = false;
  };
  void finish(Choice& choice, Outcome outcome);

  const std::shared_ptr<ServerMetrics> metrics_;
  const Clock::time_point received_;

  std::mutex mutex_;  // guards the members below
  AccessLine line_;   // what is known so far
  std::shared_ptr<ModelCounters> model_counters_;
  std::vector<Choice> choices_;
  int32_t max_tokens_ = 0;
  bool first_response_ = false;
  std::optional<Outcome> outcome_;
  bool answered_ = false;
};

}  // namespace chorus::server
