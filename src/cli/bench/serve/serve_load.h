// Sends the requests of a plan and records the responses. In an open loop they are sent at their planned times,
// independently of earlier ones; in a closed loop a number of streams runs at a time, and a request begins when another
// ends.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench/serve/request_plan.h"
#include "cli/bench/serve/request_record.h"

namespace chorus {

struct ServeLoad {
  std::vector<std::string> models;
  RequestPlanOptions plan;  // plan.models is models.size()
  HttpHeaders headers;
  double temperature = 0;
  Json extra_body = Json::object();  // fields of each request's body; they override others
  int streams = 0;                   // of a closed loop; 0: an open loop
  int64_t retries = 0;               // of each request, after answers with status 429 or 503
  bool verify = false;               // compare each answer with its solo answer; plan.pool is not 0
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of their planned times
  double seconds = 0;                  // from the start to the last end
  bool stopped = false;
  int streams = 0;  // of the load
  bool verify = false;
  std::string first_difference;  // one line about the first answer that is kDifferent
};

// Waits for the event that ends the load early, at most the given time; returns true when it came.
using StopEvent = std::function<bool(std::chrono::milliseconds)>;

// With `verify` first asks every model every prompt of the pool, one request at a time, and throws Error(kConflict) if
// one of these is not answered. Then the load begins. Returns when every request has ended. After the stop event no
// further request is sent, and running requests are cancelled: their records end as "unfinished". The client must not
// be used afterwards.
LoadResult runServeLoad(HttpClient& client, const ServeLoad& load, const StopEvent& stop);

// Returns the model names of /v1/models. Throws Error that names --url.
std::vector<std::string> servedModels(HttpClient& client, const HttpHeaders& headers);

}  // namespace chorus
