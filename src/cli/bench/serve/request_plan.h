// The requests of a load in sending order; they depend only on the options.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/serve/arrivals.h"
#include "cli/bench/serve/model_mix.h"

namespace chorus {

// A uniform distribution that includes both ends.
struct LengthRange {
  int least = 1, most = 1;
};
// "128" or "64:256". Throws Error(kInvalidArgument) that names the flag.
LengthRange parseLengthRange(const std::string& text, const std::string& flag);

struct RequestPlanOptions {
  ArrivalKind arrival = ArrivalKind::kPoisson;
  double rate = 1.0;           // requests per second
  int64_t requests = 0;        // maximum number; 0: no limit
  double duration = 0;         // seconds in which requests arrive; 0: no limit
  LengthRange prompt, output;  // tokens
  int shared_prefix = 0;       // number of first tokens that all prompts of a model share
  int vocabulary = 256;        // prompts are random ids below it
  int pool = 0;                // number of prompts, which all models share but for the prefix; 0: each prompt is new
  size_t models = 1;
  double skew = 0, churn_seconds = 0;
  uint64_t seed = 0;
};

struct PlannedRequest {
  double time = 0;  // seconds since the start
  size_t model = 0;
  int pool_index = 0;  // number of the prompt in the pool
  std::vector<int32_t> prompt;
  int output_tokens = 0;
};

class RequestPlan {
 public:
  explicit RequestPlan(const RequestPlanOptions& options);
  // The request of the next arrival. Returns nullopt when the load is over.
  std::optional<PlannedRequest> next() { return nextAt(arrivals_.next()); }
  // The request of a closed loop, which is sent at `time`. Times must ascend.
  std::optional<PlannedRequest> nextAt(double time);
  // The request for one prompt of the pool to one model, as every later request for them; index: below `pool`.
  PlannedRequest pooled(size_t model, int index) const;

 private:
  void draw(PlannedRequest& request, std::mt19937_64& random) const;

  RequestPlanOptions options_;
  Arrivals arrivals_;
  ModelMix mix_;
  std::mt19937_64 random_;
  int64_t made_ = 0;
};

}  // namespace chorus
