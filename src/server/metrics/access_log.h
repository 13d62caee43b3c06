// The access log: one line per HTTP request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"

namespace chorus::server {

struct AccessLine {
  std::string id;
  std::string trace_id;    // empty: none
  std::string method;      // empty: the request's head was not readable
  std::string_view route;  // the path of the route table, without a query; empty: no route has the path
  std::string client;
  int status = 0;
  uint64_t bytes = 0;  // of the answer's body
  double seconds = 0;  // from the complete request to the complete answer
  bool disconnected = false;
  // The rest is set for a request that the engine accepted.
  std::string model;  // name in the catalog
  std::string content_hash;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  std::optional<int64_t> cached_tokens;
  std::optional<double> queue_seconds, first_token_seconds;
  std::string_view finish_reason;
};

// Thread-safe.
class AccessLog {
 public:
  AccessLog(LogFormat format, std::shared_ptr<spdlog::sinks::sink> sink);

  void write(const AccessLine& line);

 private:
  LogFormat format_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace chorus::server
