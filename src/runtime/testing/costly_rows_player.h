// Plays steps with costly rows.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/costly_rows.h"

namespace chorus::testing {

inline RequestView generating(std::optional<uint64_t> client, uint64_t adapter = 0, double size = 0) {
  RequestView r;
  r.num_tokens = 10;
  r.num_cached = 9;
  r.running = r.generating = true;
  r.client = client;
  r.adapter = adapter;
  r.adapter_size = size;
  return r;
}
inline RequestView waiting(std::optional<uint64_t> client, uint64_t adapter, double size) {
  RequestView r = generating(client, adapter, size);
  r.running = r.generating = false;
  r.num_cached = 0;
  return r;
}

inline constexpr StepPrices kPrices{.context = 0.05, .scored = 0.1};
inline constexpr size_t kAll = std::numeric_limits<size_t>::max();

// Plays steps: every request that is not skipped gets one row, or all tokens of its context.
struct CostlyRowsPlayer {
  std::vector<RequestView> requests;
  CostlyRows costly;
  CostlyRows::Clock::time_point now;
  std::vector<int> rows;  // of each request
  double costs = 0;       // of all steps, of costly rows
  double most = 0;        // of one step
  double rest = 0;        // reads of all other rows of all steps

  void begin() {
    for (RequestView& r : requests) {
      r.skipped = false;
      r.max_chunk = std::numeric_limits<int32_t>::max();
    }
    costly.beginLimited(requests, kPrices, 64, std::numeric_limits<int64_t>::max(), now);
  }
  bool prompts_get_tokens = true;
  // Only the first `runnable` requests can run.
  void step(size_t runnable = kAll) {
    rows.resize(requests.size());
    begin();
    SchedulerPlan plan;
    int64_t generated = 0, prompt = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestView& r = requests[i];
      ++r.steps_without_row;
      if (r.skipped || i >= runnable || (!r.generating && !prompts_get_tokens)) continue;
      r.steps_without_row = 0;
      const int32_t tokens = r.generating ? 1 : std::min(r.num_tokens - r.num_cached, r.max_chunk);
      plan.sequences.push_back({static_cast<int32_t>(i), tokens, !r.generating, true});
      ++rows[i];
      if (r.generating) ++generated;
      if (!r.generating && r.num_cached < r.scored_from) prompt += tokens;
    }
    rest += readsOf(std::max<int64_t>(generated, 1)) + kPrices.context * static_cast<double>(prompt);
    double costs_of_step = 0;
    for (const auto& cost : costly.count(requests, plan, kPrices)) costs_of_step += cost.total();
    costs += costs_of_step;
    most = std::max(most, costs_of_step);
  }
  CostlyRowsPlayer& play(int steps, size_t runnable = kAll) {
    for (int i = 0; i < steps; ++i) step(runnable);
    return *this;
  }
};

}  // namespace chorus::testing
