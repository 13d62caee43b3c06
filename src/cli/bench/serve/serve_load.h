// Sends the requests of a plan at their times, whatever becomes of the earlier ones, and takes down their answers.
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

// Waits at most so long for the event that ends the load early; true when it came.
using StopEvent = std::function<bool(std::chrono::milliseconds)>;

// Returns when every request has ended. When the event comes no further request is sent, and those under way are
// broken off: their records end as "unfinished". client: not to be used afterwards.
LoadResult runServeLoad(HttpClient& client, const ServeLoad& load, const StopEvent& stop);

// The names that /v1/models lists. Throws Error that names --url.
std::vector<std::string> servedModels(HttpClient& client, const HttpClient::Headers& headers);

}  // namespace chorus
