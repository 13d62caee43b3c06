// Simulates the executor around the scheduler and the block manager: it applies plans, gives every sampling sequence a
// token, and checks after each step that no budget was exceeded.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/kv_cache/block_manager.h"
#include "runtime/scheduler.h"

namespace chorus::testing {

struct SimulatedRequest {
  std::string name;
  int32_t prompt = 1;
  int32_t new_tokens = 1;  // requested
  int32_t stop_after = 0;  // really generated, if less than new_tokens; 0: all
  QueuePosition position;
  std::optional<uint64_t> client;
  std::vector<AdapterUse> adapters;
  bool adapter_ready = true;
  int32_t family = 0;  // requests of one family begin with equal tokens
  int32_t common = 0;  // the most tokens that it shares with its family

  std::vector<int32_t> tokens;  // prompt and generated
  int32_t generated = 0;
  int32_t cached = 0;
  int32_t slot = -1;
  int32_t reused = 0;  // tokens found in the cache, over all its starts
  bool running = false;
  bool generating = false;
  bool was_paused = false;
  bool scores = false;  // wants logits of its prompt
  int32_t scored = 0;   // leading tokens whose logits it has
  int32_t bypassed = 0;
  int32_t first_step = -1;  // first step that it ran in
  int32_t starts = 0;
  int32_t arrived_step = 0;
  int32_t started_step = 0;           // step of its last start
  std::shared_ptr<QueueEntry> entry;  // its entry in the queue

  // A number that identifies the adapter or composition; unique among those that the tests use.
  uint64_t adapter() const {
    uint64_t number = 0;
    for (const AdapterUse& use : adapters) number = number * 100 + use.number;
    return number;
  }
  int32_t known() const { return prompt + generated; }
  bool done() const { return generated >= (stop_after > 0 ? stop_after : new_tokens); }
};

class SchedulerSimulation {
 public:
  SchedulerLimits limits;
  bool reuse = true;
  std::function<bool(const SimulatedRequest&)> skips;  // sets RequestView::skipped; empty: nobody is skipped

  void arrive(SimulatedRequest request);
  // Ends a request now, running or waiting. Returns false if there is none of this name.
  bool cancel(const std::string& name);
  void setAdapterReady(uint64_t adapter, bool ready);

  // Runs one step. Returns the plan as text, "start=a context=a:4 generate=b pause=c finish=d" without the empty parts,
  // or "idle" if nothing ran. Throws std::logic_error that names the broken budget or order.
  std::string step();

  bool empty() const { return running_.empty() && queue_.numWaiting() == 0; }
  int32_t steps() const { return steps_; }
  int32_t blocksHeld() const { return blocks_ == nullptr ? 0 : blocks_->usedBlocks(); }
  int32_t blocksCached() const { return blocks_ == nullptr ? 0 : blocks_->cachedBlocks(); }
  const std::vector<SimulatedRequest>& finished() const { return finished_; }
  const SchedulerPlan& plan() const { return plan_; }
  // In the order they started, as of the end of the last step.
  const std::vector<SimulatedRequest>& running() const { return running_; }
  std::vector<SimulatedRequest> waiting() const;

 private:
  void begin();
  RequestView view(const SimulatedRequest& r) const;
  void countFreed(std::span<const SimulatedRequest> all, std::vector<RequestView>& views);
  void leave(SimulatedRequest& r);
  uint64_t namespaceOf(const SimulatedRequest& r) const { return 1 + r.adapter(); }
  void check(const std::vector<RequestView>& views) const;

  std::vector<SimulatedRequest> running_;         // in the order they started
  std::map<uint64_t, SimulatedRequest> waiting_;  // by arrival
  FairQueue queue_;
  std::vector<SimulatedRequest> finished_;
  std::unique_ptr<BlockManager> blocks_;
  std::vector<int32_t> free_slots_;
  SchedulerPlan plan_;
  uint64_t arrivals_ = 0;
  int32_t steps_ = 0;
};

inline void SchedulerSimulation::arrive(SimulatedRequest request) {
  request.position.arrival = arrivals_++;
  for (int32_t i = 0; i < request.prompt; ++i) {
    const bool common = i < request.common;
    request.tokens.push_back(common ? -1 - request.family : static_cast<int32_t>(request.position.arrival));
  }
  request.arrived_step = steps_;
  request.entry = std::make_shared<QueueEntry>(request.position);
  queue_.add(*request.entry, request.client);
  waiting_.emplace(request.position.arrival, std::move(request));
}

inline std::vector<SimulatedRequest> SchedulerSimulation::waiting() const {
  std::vector<SimulatedRequest> all;
  for (const auto& [_, request] : waiting_) all.push_back(request);
  return all;
}

inline bool SchedulerSimulation::cancel(const std::string& name) {
  const auto named = [&](const auto& request) { return request.name == name; };
  for (auto& request : running_) {
    if (!named(request)) continue;
    leave(request);
    queue_.remove(*request.entry, true);
  }
  for (auto& [_, request] : waiting_) {
    if (named(request)) queue_.remove(*request.entry, false);
  }
  return std::erase_if(running_, named) + std::erase_if(waiting_, [&](const auto& r) { return named(r.second); }) > 0;
}

inline void SchedulerSimulation::setAdapterReady(uint64_t adapter, bool ready) {
  for (auto& [_, request] : waiting_) {
    for (const AdapterUse& use : request.adapters) {
      if (use.number == adapter) request.adapter_ready = ready;
    }
  }
}

// Creates the pool once the limits are known. A table can cover the whole pool and any sequence that windows let run in
// a small pool, so no request outgrows its table.
inline void SchedulerSimulation::begin() {
  if (blocks_ != nullptr) return;
  blocks_ = std::make_unique<BlockManager>(
      BlockPool{.num_blocks = limits.kv_blocks,
                .tokens_per_block = limits.kv.tokens_per_block,
                .num_slots = limits.max_batch_size,
                .max_seq_len = std::max(limits.kv_blocks * limits.kv.tokens_per_block, 1024),
                .windows = limits.kv.windows});
  for (int32_t slot = limits.max_batch_size; slot-- > 0;) free_slots_.push_back(slot);
}

inline RequestView SchedulerSimulation::view(const SimulatedRequest& r) const {
  RequestView view;
  view.num_tokens = r.known();
  view.num_cached = r.cached;
  view.final_cached = r.prompt + r.new_tokens - 1;
  view.running = r.running;
  view.generating = r.generating;
  view.was_paused = r.was_paused;
  if (r.scores && r.scored + 1 < r.prompt) view.scored_from = r.scored;
  view.adapter = r.adapter();
  view.adapters = r.adapters;
  view.adapter_ready = r.adapter_ready;
  view.times_bypassed = r.bypassed;
  view.client = FairQueue::clientOf(*r.entry);
  view.priority = r.position.priority;
  view.steps_run = steps_ - r.started_step;
  if (r.running) {
    view.blocks_held = blocks_->heldLasting(r.slot);
    if (reuse && !r.generating) view.next_block = blocks_->nextBlock(r.slot, namespaceOf(r), r.tokens, r.cached);
  } else if (reuse) {
    const PrefixMatch match = blocks_->match(namespaceOf(r), r.tokens, r.known() - 1);
    view.num_cached = match.blocks * limits.kv.tokens_per_block;
    view.blocks_held = match.held;
    view.blocks_taken = match.cached;
    view.next_block = match.next_block;
    view.can_reuse_next = match.next_block != 0 && view.num_cached + limits.kv.tokens_per_block < r.known();
  }
  return view;
}

inline void SchedulerSimulation::countFreed(std::span<const SimulatedRequest> all, std::vector<RequestView>& views) {
  std::vector<int32_t> slots;
  for (const auto& r : all) {
    if (r.running) slots.insert(slots.begin(), r.slot);
  }
  std::vector<int32_t> freed(slots.size());
  blocks_->freedBy(slots, freed);
  for (size_t i = 0; i < freed.size(); ++i) {
    views[i].blocks_freed = freed[freed.size() - 1 - i];
    views[i].blocks_alone = blocks_->usedAlone(all[i].slot);
  }
}

inline void SchedulerSimulation::leave(SimulatedRequest& r) {
  blocks_->release(r.slot);
  free_slots_.push_back(r.slot);
  r.slot = -1;
}

inline std::string SchedulerSimulation::step() {
  begin();
  std::vector<RequestView> views;
  std::vector<SimulatedRequest> all;
  for (auto& request : running_) all.push_back(std::move(request));
  queue_.beginTurns();
  for (QueueEntry* next = queue_.nextTurn(); next != nullptr; next = queue_.nextTurn()) {
    all.push_back(std::move(waiting_.at(next->position.arrival)));
  }
  running_.clear();
  waiting_.clear();
  for (const auto& r : all) views.push_back(view(r));
  countFreed(all, views);
  const StepRoom room{.free_blocks = blocks_->numBlocks() - blocks_->lastingBlocks(),
                      .turn = static_cast<uint64_t>(steps_)};
  for (size_t i = 0; i < all.size(); ++i) views[i].skipped = skips && skips(all[i]);
  schedule(limits, room, views, plan_);
  if (plan_.sequences.empty()) {
    for (RequestView& view : views) view.skipped = false;
    schedule(limits, room, views, plan_);
  }
  check(views);

  const auto at = [&](int32_t i) -> SimulatedRequest& { return all[static_cast<size_t>(i)]; };
  std::string start, context, generate, pause, finish;
  const auto append = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ",") + item; };
  for (const int32_t i : plan_.paused) {
    auto& r = at(i);
    r.running = r.generating = false;
    r.was_paused = true;
    r.cached = 0;
    leave(r);
    queue_.pause(*r.entry);
    append(pause, r.name);
  }
  for (const int32_t i : plan_.bypassed) ++at(i).bypassed;
  for (const int32_t i : plan_.started) {
    auto& r = at(i);
    r.running = true;
    r.bypassed = 0;
    r.started_step = steps_;
    queue_.start(*r.entry);
    ++r.starts;
    r.slot = free_slots_.back();
    free_slots_.pop_back();
    const auto& seen = views[static_cast<size_t>(i)];
    if (reuse) blocks_->reuse(r.slot, namespaceOf(r), r.tokens, seen.num_cached / limits.kv.tokens_per_block);
    r.cached = seen.num_cached;
    r.reused += r.cached;
    append(start, r.name);
  }
  for (const auto& sequence : plan_.sequences) {
    const auto& r = at(sequence.request_index);
    if (!blocks_->extend(r.slot, r.known(), r.cached + sequence.num_tokens))
      throw std::logic_error("no block for " + r.name);
  }
  for (const auto& sequence : plan_.sequences) {
    auto& r = at(sequence.request_index);
    if (r.first_step < 0) r.first_step = steps_;
    r.cached += sequence.num_tokens;
    r.scored = std::max(r.scored, r.cached);
    if (reuse) blocks_->commitBlocks(r.slot, namespaceOf(r), std::span(r.tokens).first(static_cast<size_t>(r.cached)));
    blocks_->slideWindows(r.slot, r.cached);
    append(sequence.context ? context : generate,
           sequence.context ? fmt::format("{}:{}", r.name, sequence.num_tokens) : r.name);
    if (sequence.samples) {
      ++r.generated;
      r.tokens.push_back(static_cast<int32_t>(r.position.arrival));
      r.generating = true;
    }
  }
  std::vector<int32_t> order;
  for (int32_t i = 0; i < static_cast<int32_t>(all.size()); ++i) {
    if (views[static_cast<size_t>(i)].running && at(i).running) order.push_back(i);
  }
  order.insert(order.end(), plan_.started.begin(), plan_.started.end());
  for (const int32_t i : order) {
    if (at(i).done()) {
      append(finish, at(i).name);
      leave(at(i));
      queue_.remove(*at(i).entry, true);
      finished_.push_back(at(i));
    } else {
      running_.push_back(at(i));
    }
  }
  for (auto& request : all) {
    if (!request.running) waiting_.emplace(request.position.arrival, std::move(request));
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
  int32_t tokens = 0, scored = 0;  // scored: rows with logits
  std::set<int32_t> seen;
  for (size_t i = 0; i < plan_.sequences.size(); ++i) {
    const auto& s = plan_.sequences[i];
    const auto& r = views[static_cast<size_t>(s.request_index)];
    tokens += s.num_tokens;
    const bool has_logits = r.num_cached + s.num_tokens > r.scored_from;
    if (has_logits && (limits.chunked_context || r.was_paused)) scored += s.num_tokens;
    if (s.num_tokens < 1) broken("a sequence without tokens");
    if (!seen.insert(s.request_index).second) broken("a request planned twice");
    const int32_t end = r.num_cached + s.num_tokens;
    if (end > r.num_tokens) broken("more tokens than are known");
    if (s.samples != (end == r.num_tokens)) broken("samples is wrong");
    if (end < r.num_tokens && end % limits.kv.tokens_per_block != 0) broken("a chunk that is not whole blocks");
    if (end < r.num_tokens && !limits.chunked_context && !r.was_paused) broken("a chunk where none is allowed");
    if (s.context == r.generating) broken("context and generation mixed up");
    if (r.adapter != 0 && !r.adapter_ready) broken("a planned request whose adapter is not ready");
    if (r.skipped && (r.running || r.times_bypassed < limits.max_bypasses)) broken("a planned request that is skipped");
    if (i > 0) {
      const auto& before = plan_.sequences[i - 1];
      if (s.context && !before.context) broken("a context after generation");
      if (s.context == before.context && views[static_cast<size_t>(before.request_index)].adapter > r.adapter) {
        broken("not sorted by adapter");
      }
    }
  }
  if (tokens > limits.max_num_tokens) broken(fmt::format("{} tokens of {}", tokens, limits.max_num_tokens));
  if (scored > limits.max_scored_rows) broken(fmt::format("{} rows with logits", scored));
  std::set<uint64_t> adapters;
  AdapterSize cost;
  int32_t running = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(views.size()); ++i) {
    const auto& r = views[static_cast<size_t>(i)];
    const bool paused = std::find(plan_.paused.begin(), plan_.paused.end(), i) != plan_.paused.end();
    const bool started = std::find(plan_.started.begin(), plan_.started.end(), i) != plan_.started.end();
    if (started && (r.running || !seen.contains(i))) broken("started without tokens, or twice");
    if (paused && (!r.running || seen.contains(i))) broken("paused although not running, or paused and planned");
    if (seen.contains(i) && !r.running && !started) broken("planned without a start");
    if (r.generating && !r.skipped && !paused && !seen.contains(i)) broken("a generating request is not in the plan");
    if ((r.running && !paused) || started) {
      ++running;
      for (const AdapterUse& use : r.adapters) {
        if (adapters.insert(use.number).second) cost += use.size;
      }
    }
  }
  if (running > limits.max_batch_size) broken("more running than max_batch_size");
  if (!cost.within(limits.adapter_budget)) broken("adapters over their budget");
}

}  // namespace chorus::testing
