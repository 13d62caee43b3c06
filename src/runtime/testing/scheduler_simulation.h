// Plays the executor's part around the scheduler, for tests: applies plans, lets every sampling sequence
// produce a token, and checks after each step that no budget was exceeded.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/scheduler.h"

namespace chorus::testing {

struct SimulatedRequest {
  std::string name;
  int32_t prompt = 1;
  int32_t new_tokens = 1;  // it asks for
  int32_t stop_after = 0;  // it really makes, when less than new_tokens; 0: all
  QueuePosition position;
  uint64_t adapter = 0;
  int64_t adapter_cost = 0;
  bool adapter_ready = true;

  int32_t generated = 0;
  int32_t cached = 0;
  int32_t blocks = 0;
  bool running = false;
  bool generating = false;
  bool was_paused = false;
  int32_t bypassed = 0;
  int32_t first_step = -1;  // it ran in
  int32_t starts = 0;

  int32_t known() const { return prompt + generated; }
  bool done() const { return generated >= (stop_after > 0 ? stop_after : new_tokens); }
};

class SchedulerSimulation {
 public:
  SchedulerLimits limits;

  void arrive(SimulatedRequest request);
  // Ends a request now, wherever it is. False when it is not there.
  bool cancel(const std::string& name);
  void setAdapterReady(uint64_t adapter, bool ready);

  // One step. Returns the plan as text, "start=a context=a:4 generate=b pause=c finish=d" with empty parts
  // left out, "idle" when nothing ran. Throws std::logic_error that says which budget or order was broken.
  std::string step();

  bool empty() const { return running_.empty() && waiting_.empty(); }
  int32_t steps() const { return steps_; }
  int32_t blocksHeld() const;
  const std::vector<SimulatedRequest>& finished() const { return finished_; }
  const SchedulerPlan& plan() const { return plan_; }

 private:
  void enqueue(SimulatedRequest request);
  void check(const std::vector<RequestView>& views) const;
  int32_t blocksFor(int32_t tokens) const {
    return (tokens + limits.tokens_per_block - 1) / limits.tokens_per_block;
  }

  std::vector<SimulatedRequest> running_;  // in the order they started
  std::deque<SimulatedRequest> waiting_;   // in queue order
  std::vector<SimulatedRequest> finished_;
  SchedulerPlan plan_;
  uint64_t arrivals_ = 0;
  int32_t steps_ = 0;
};

inline void SchedulerSimulation::arrive(SimulatedRequest request) {
  request.position.arrival = arrivals_++;
  enqueue(std::move(request));
}

inline void SchedulerSimulation::enqueue(SimulatedRequest request) {
  const auto later = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const auto& other) { return request.position < other.position; });
  waiting_.insert(later, std::move(request));
}

inline bool SchedulerSimulation::cancel(const std::string& name) {
  const auto named = [&](const auto& request) { return request.name == name; };
  return std::erase_if(running_, named) + std::erase_if(waiting_, named) > 0;
}

inline void SchedulerSimulation::setAdapterReady(uint64_t adapter, bool ready) {
  for (auto& request : waiting_) {
    if (request.adapter == adapter) request.adapter_ready = ready;
  }
}

inline int32_t SchedulerSimulation::blocksHeld() const {
  int32_t blocks = 0;
  for (const auto& request : running_) blocks += request.blocks;
  return blocks;
}

inline std::string SchedulerSimulation::step() {
  std::vector<RequestView> views;
  std::vector<SimulatedRequest> all;
  for (auto& request : running_) all.push_back(std::move(request));
  for (auto& request : waiting_) all.push_back(std::move(request));
  running_.clear();
  waiting_.clear();
  for (const auto& r : all) {
    views.push_back({r.known(), r.cached, r.prompt + r.new_tokens - 1, r.blocks, r.running, r.generating,
                     r.was_paused, r.adapter, r.adapter_ready, r.adapter_cost, r.bypassed});
  }
  schedule(limits, views, plan_);
  check(views);

  const auto at = [&](int32_t i) -> SimulatedRequest& { return all[static_cast<size_t>(i)]; };
  std::string start, context, generate, pause, finish;
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ",") + item;
  };
  for (const int32_t i : plan_.paused) {
    auto& r = at(i);
    r.running = r.generating = false;
    r.was_paused = true;
    r.cached = r.blocks = 0;
    append(pause, r.name);
  }
  for (const int32_t i : plan_.bypassed) ++at(i).bypassed;
  for (const int32_t i : plan_.started) {
    at(i).running = true;
    ++at(i).starts;
    append(start, at(i).name);
  }
  for (const auto& sequence : plan_.sequences) {
    auto& r = at(sequence.request_index);
    r.blocks = std::max(r.blocks, blocksFor(r.known()));
    if (r.first_step < 0) r.first_step = steps_;
    r.cached += sequence.num_tokens;
    append(sequence.context ? context : generate,
           sequence.context ? fmt::format("{}:{}", r.name, sequence.num_tokens) : r.name);
    if (sequence.samples) {
      ++r.generated;
      r.generating = true;
    }
  }
  std::vector<int32_t> order;
  for (int32_t i = 0; i < static_cast<int32_t>(all.size()); ++i) {
    if (views[static_cast<size_t>(i)].running && at(i).running) order.push_back(i);
  }
  order.insert(order.end(), plan_.started.begin(), plan_.started.end());
  int32_t blocks = 0;
  for (const int32_t i : order) blocks += at(i).blocks;
  if (blocks > limits.kv_blocks)
    throw std::logic_error(fmt::format("{} blocks held of {}", blocks, limits.kv_blocks));
  for (const int32_t i : order) {
    if (at(i).done()) {
      append(finish, at(i).name);
      finished_.push_back(at(i));
    } else {
      running_.push_back(at(i));
    }
  }
  for (auto& request : all) {
    if (!request.running) enqueue(std::move(request));
  }
  ++steps_;
  std::string text;
  const auto part = [&](const char* key, const std::string& list) {
    if (!list.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, list);
  };
  part("start", start);
  part("context", context);
  part("generate", generate);
  part("pause", pause);
  part("finish", finish);
  return text.empty() ? "idle" : text;
}

inline void SchedulerSimulation::check(const std::vector<RequestView>& views) const {
  const auto broken = [](const std::string& what) { throw std::logic_error(what); };
  int32_t tokens = 0;
  std::set<int32_t> seen;
  for (size_t i = 0; i < plan_.sequences.size(); ++i) {
    const auto& s = plan_.sequences[i];
    const auto& r = views[static_cast<size_t>(s.request_index)];
    tokens += s.num_tokens;
    if (s.num_tokens < 1) broken("a sequence without tokens");
    if (!seen.insert(s.request_index).second) broken("a request planned twice");
    const int32_t end = r.num_cached + s.num_tokens;
    if (end > r.num_tokens) broken("more tokens than are known");
    if (s.samples != (end == r.num_tokens)) broken("samples is wrong");
    if (end < r.num_tokens && end % limits.tokens_per_block != 0) broken("a chunk that is not whole blocks");
    if (end < r.num_tokens && !limits.chunked_context && !r.was_paused)
      broken("a chunk where none is allowed");
    if (s.context == r.generating) broken("context and generation mixed up");
    if (r.adapter != 0 && !r.adapter_ready) broken("an adapter that is not there");
    if (i > 0) {
      const auto& before = plan_.sequences[i - 1];
      if (s.context && !before.context) broken("a context after generation");
      if (s.context == before.context &&
          views[static_cast<size_t>(before.request_index)].adapter > r.adapter) {
        broken("not sorted by adapter");
      }
    }
  }
  if (tokens > limits.max_num_tokens) broken(fmt::format("{} tokens of {}", tokens, limits.max_num_tokens));
  std::set<uint64_t> adapters;
  int64_t cost = 0;
  int32_t running = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(views.size()); ++i) {
    const auto& r = views[static_cast<size_t>(i)];
    const bool paused = std::find(plan_.paused.begin(), plan_.paused.end(), i) != plan_.paused.end();
    const bool started = std::find(plan_.started.begin(), plan_.started.end(), i) != plan_.started.end();
    if (started && (r.running || !seen.contains(i))) broken("started without tokens, or twice");
    if (paused && (!r.running || seen.contains(i))) broken("paused without running, or planned all the same");
    if (seen.contains(i) && !r.running && !started) broken("planned without a start");
    if (r.generating && !paused && !seen.contains(i)) broken("a generating request left out");
    if ((r.running && !paused) || started) {
      ++running;
      if (r.adapter != 0 && adapters.insert(r.adapter).second) cost += r.adapter_cost;
    }
  }
  if (running > limits.max_batch_size) broken("more running than max_batch_size");
  if (cost > limits.adapter_budget) broken("adapters over their budget");
}

}  // namespace chorus::testing
