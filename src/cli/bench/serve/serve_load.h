// Sends the requests of a plan at their planned times, independently of earlier ones, and records the responses.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/serve/request_plan.h"
#include "cli/bench/serve/request_record.h"

namespace chorus {

struct ServeLoad {
  std::vector<std::string> models;
  RequestPlanOptions plan;  // plan.models is models.size()
  HttpClient::Headers headers;
  double temperature = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of their planned times
  double seconds = 0;                  // from the start to the last end
  bool stopped = false;
};

// Waits for the event that ends the load early, at most the given time; returns true when it came.
using StopEvent = std::function<bool(std::chrono::milliseconds)>;

// Returns when every request has ended. After the stop event no further request is sent, and running requests are
// cancelled: their records end as "unfinished". The client must not be used afterwards.
LoadResult runServeLoad(HttpClient& client, const ServeLoad& load, const StopEvent& stop);

// Returns the model names of /v1/models. Throws Error that names --url.
std::vector<std::string> servedModels(HttpClient& client, const HttpClient::Headers& headers);

}  // namespace chorus
