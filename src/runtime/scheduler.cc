#include "runtime/scheduler.h"

#include <algorithm>
#include <cassert>

#include "runtime/context_tokens.h"

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;

// The most blocks that r holds until it has `tokens` tokens. The chunks of a context have up to max_num_tokens tokens.
int32_t mostBlocks(const SchedulerLimits& limits, const RequestView& r, int32_t tokens) {
  return static_cast<int32_t>(limits.kv.mostBlocks(tokens, r.generating ? 1 : limits.max_num_tokens));
}

// Blocks that r keeps: under kMAX_UTILIZATION those for the next token, else those at its end. A context takes the
// blocks of all its tokens when it starts, so that none of its chunks can fail.
int32_t blocksKept(const SchedulerLimits& limits, const RequestView& r) {
  const int32_t now = std::max(mostBlocks(limits, r, r.num_tokens), r.blocks_held);
  if (limits.policy == CapacitySchedulerPolicy::kMAX_UTILIZATION) return now;
  return std::max(now, mostBlocks(limits, r, r.final_cached));
}

class Pass {
 public:
  Pass(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests, SchedulerPlan& plan)
      : limits_(limits),
        room_(room),
        requests_(requests),
        plan_(plan),
        free_blocks_(room.free_blocks),
        adapters_(plan.scratch.adapters),
        computing_(plan.scratch.computing),
        short_of_adapters_(plan.scratch.short_of_adapters),
        skipped_(plan.scratch.skipped),
        short_(plan.scratch.short_of_blocks),
        tallies_(plan.scratch.clients),
        gone_(plan.scratch.gone) {
    while (num_running_ < count() && at(num_running_).running) ++num_running_;
    plan.paused.clear();
    plan.started.clear();
    plan.bypassed.clear();
    plan.sequences.clear();
    adapters_.clear();
    computing_.clear();
    short_of_adapters_.clear();
    skipped_.clear();
    short_.clear();
    tallies_.clear();
    gone_.assign(static_cast<size_t>(num_running_), 0);
    several_clients_ = std::any_of(requests.begin(), requests.end(),
                                   [&](const RequestView& r) { return r.client != requests.front().client; });
  }

  void run() {
    keepRunning();
    running_ = last_running_;
    if (mayStart()) addWaiting();
    for (int32_t i = 0; i < last_running_; ++i) {
      if (getsRows(i) && at(i).generating) plan_.sequences.push_back({i, 1, false, true});
    }
    const size_t generating = plan_.sequences.size();
    const int32_t tokens = std::min(limits_.max_num_tokens - static_cast<int32_t>(generating), contextTokens());
    for (int32_t i = 0; i < last_running_; ++i) {
      if (getsRows(i) && !at(i).generating) plan_.sequences.push_back({i, 0, true, false});
    }
    for (const int32_t i : plan_.started) plan_.sequences.push_back({i, 0, true, false});
    plan_.started.clear();
    shareContextTokens(limits_, room_, requests_, tokens, std::span(plan_.sequences).subspan(generating),
                       plan_.scratch.lanes);
    keepContextsWithTokens();
    order();
  }

 private:
  int32_t count() const { return static_cast<int32_t>(requests_.size()); }
  const RequestView& at(int32_t i) const { return requests_[static_cast<size_t>(i)]; }
  bool isGone(int32_t i) const { return gone_[static_cast<size_t>(i)] != 0; }
  bool getsRows(int32_t i) const { return !isGone(i) && !at(i).skipped; }
  bool pausing() const { return limits_.policy == CapacitySchedulerPolicy::kMAX_UTILIZATION; }
  int32_t blocksKept(const RequestView& r) const { return chorus::blocksKept(limits_, r); }

  // A context that may not be chunked needs room for all its tokens.
  int32_t contextTokens() const {
    if (!limits_.chunked_context) return limits_.max_num_tokens;
    return std::max(room_.context_tokens, limits_.kv.tokens_per_block);
  }

  // Decides which requests keep running: [0, last_running_). The others are paused, the last started one first.
  void keepRunning() {
    last_running_ = num_running_;
    if (!pausing()) {
      for (int32_t i = 0; i < num_running_; ++i) free_blocks_ -= blocksLacking(limits_, at(i));
      return;
    }
    for (int32_t i = 0; i < last_running_; ++i) {
      const int32_t need = blocksLacking(limits_, at(i));
      while (need > free_blocks_ && last_running_ > i) {
        plan_.paused.push_back(--last_running_);
        free_blocks_ += at(last_running_).blocks_freed;
      }
      if (last_running_ > i) free_blocks_ -= need;
    }
  }

  // A step that had to pause requests starts none, because the remaining blocks are for the paused ones.
  bool mayStart() const {
    if (!plan_.paused.empty()) return false;
    return limits_.policy != CapacitySchedulerPolicy::kSTATIC_BATCH || num_running_ == 0;
  }

  // Generation needs one token per running request, so at most max_num_tokens requests run.
  int32_t maxRunning() const { return std::min(limits_.max_batch_size, limits_.max_num_tokens); }

  void addWaiting() {
    for (int32_t i = 0; i < last_running_; ++i) {
      computes(at(i));
      adapter_size_ += takeAdapters(at(i));
      if (several_clients_) add(at(i), 1);
      if (at(i).generating) ++generating_;
    }
    bool adapters_wait = false;  // behind a request that was overtaken max_bypasses times
    for (int32_t i = num_running_; i < count(); ++i) {
      const RequestView& r = at(i);
      if (r.adapter != 0 && (adapters_wait || !r.adapter_ready)) continue;
      if (r.skipped && (overdue_started_ || !isOverdue(r))) {
        if (several_clients_ && blocksTaken(r) > free_blocks_) skipped_.push_back(i);
        continue;
      }
      if (r.can_reuse_next && isComputed(r)) continue;
      if (isShort(r.client)) continue;
      const bool has_place = running_ < maxRunning() && blocksTaken(r) <= free_blocks_ && adaptersFit(r);
      // A request with a place but without tokens begins too, so that its client's later requests do not overtake it.
      if ((has_place && hasTokens(r)) || pauseFor(r) || has_place) {
        begin(i);
        overdue_started_ |= r.skipped;
        continue;
      }
      if (running_ >= maxRunning()) break;
      if (!adaptersFit(r)) {
        adapters_wait = r.times_bypassed >= limits_.max_bypasses;
        short_of_adapters_.push_back(i);
        continue;
      }
      // If r does not fit, its client's later requests wait too. Requests of other clients may need fewer blocks and
      // may overtake r, up to max_bypasses times, or as long as r waits for its own client.
      if (!several_clients_ || (isOverdue(r) && othersCanMakeRoom(r))) break;
      short_.push_back(i);
    }
  }

  void begin(int32_t i) {
    const RequestView& r = at(i);
    free_blocks_ -= blocksTaken(r);
    borrowed_ += r.blocks_held - r.blocks_taken;
    computes(r);
    adapter_size_ += takeAdapters(r);
    if (several_clients_) add(r, 1);
    ++running_;
    plan_.started.push_back(i);
  }

  // Whether generation leaves enough tokens for the first piece of r. Matters only with several clients: a single
  // client waits for its own generation.
  bool hasTokens(const RequestView& r) const {
    return !several_clients_ || nextPiece(limits_, r, 0) <= limits_.max_num_tokens - generating_;
  }

  bool isOverdue(const RequestView& r) const { return r.times_bypassed >= limits_.max_bypasses; }
  bool mayPause(const RequestView& other, const RequestView& r) const {
    return other.client != r.client && other.priority <= r.priority;
  }
  // Whether r fits once all sequences that may be paused for it are.
  bool othersCanMakeRoom(const RequestView& r) const {
    int32_t left = limits_.kv_blocks - blocksKept(r);
    for (int32_t i = 0; i < last_running_; ++i) {
      if (!isGone(i) && !mayPause(at(i), r)) left -= blocksKept(at(i));
    }
    return left >= 0;
  }

  bool isShort(std::optional<uint64_t> client) const {
    return std::any_of(short_.begin(), short_.end(), [&](int32_t i) { return at(i).client == client; });
  }

  // Free blocks that starting r consumes. A fair pause of this step may have freed the blocks that r would share, so
  // all its blocks count then.
  int32_t blocksTaken(const RequestView& r) const {
    return fair_pauses_ > 0 ? blocksKept(r) : blocksLacking(limits_, r);
  }

  ClientTally& tallyOf(std::optional<uint64_t> client) {
    const auto found =
        std::find_if(tallies_.begin(), tallies_.end(), [&](const auto& t) { return t.client == client; });
    return found != tallies_.end() ? *found : tallies_.emplace_back(ClientTally{client, 0, 0});
  }
  void add(const RequestView& r, int32_t sign) {
    ClientTally& tally = tallyOf(r.client);
    tally.sequences += sign;
    tally.blocks += sign * blocksKept(r);
  }

  // Pauses sequences of clients that hold more until r can start. Returns false if it cannot, with nothing paused
  // unless r is overdue and the blocks that the paused sequences share may be enough: the next step will know.
  bool pauseFor(const RequestView& r) {
    if (!several_clients_ || limits_.policy == CapacitySchedulerPolicy::kSTATIC_BATCH) return false;
    const size_t before = plan_.paused.size();
    int32_t shared = 0;  // blocks of paused sequences that others use too
    for (;;) {
      const bool no_slot = running_ >= maxRunning() || !hasTokens(r), no_blocks = blocksTaken(r) > free_blocks_;
      if (!no_slot && !no_blocks && adaptersFit(r)) return true;
      const int32_t victim = victimFor(r, no_blocks && !no_slot, !no_slot && !no_blocks);
      if (victim < 0) {
        if (no_blocks && !no_slot && isOverdue(r) && blocksTaken(r) <= free_blocks_ + shared) return false;
        break;
      }
      shared += at(victim).blocks_held - at(victim).blocks_alone;
      pause(victim);
    }
    while (plan_.paused.size() > before) resume();
    return false;
  }

  // Compares amounts divided by weights: whether a / weight_a < b / weight_b.
  static bool isLess(int32_t a, int32_t weight_a, int32_t b, int32_t weight_b) {
    return int64_t{a} * weight_b < int64_t{b} * weight_a;
  }

  // The request to pause for r: the last started one of the client that holds the most for its weight; -1: none.
  int32_t victimFor(const RequestView& r, bool by_blocks, bool with_adapters) {
    const int32_t own = by_blocks ? tallyOf(r.client).blocks + blocksKept(r) : tallyOf(r.client).sequences + 1;
    int32_t victim = -1, most = 0, most_weight = 1;
    for (int32_t i = last_running_ - 1; i >= 0; --i) {
      const RequestView& other = at(i);
      if (isGone(i) || !mayPause(other, r)) continue;
      if (with_adapters && other.adapters.empty()) continue;
      const ClientTally& tally = tallyOf(other.client);
      const int32_t held = by_blocks ? tally.blocks : tally.sequences;
      if (!isLess(most, most_weight, held, other.weight)) continue;
      const int32_t kept = held - (by_blocks ? blocksKept(other) : 1);
      const bool keeps_less = isLess(kept, other.weight, own, r.weight);
      const bool takes_turns = (by_blocks && isOverdue(r)) || !isLess(held, other.weight, own, r.weight);
      if (keeps_less && !(takes_turns && hadItsTurn(other))) continue;
      victim = i;
      most = held;
      most_weight = other.weight;
    }
    return victim;
  }

  // Whether r has run long enough to justify the cost of recomputing its context.
  bool hadItsTurn(const RequestView& r) const {
    return r.steps_run >= limits_.turn_steps + 4 * (r.num_tokens / limits_.max_num_tokens);
  }

  void pause(int32_t i) {
    const RequestView& r = at(i);
    if (fair_pauses_++ == 0) free_blocks_ -= borrowed_;
    free_blocks_ += blocksKept(r) - r.blocks_held + r.blocks_alone;
    gone_[static_cast<size_t>(i)] = 1;
    plan_.paused.push_back(i);
    add(r, -1);
    --running_;
    generating_ -= r.generating ? 1 : 0;
    countAdapters();
  }
  // Undoes the last pause().
  void resume() {
    const int32_t i = plan_.paused.back();
    const RequestView& r = at(i);
    plan_.paused.pop_back();
    gone_[static_cast<size_t>(i)] = 0;
    free_blocks_ -= blocksKept(r) - r.blocks_held + r.blocks_alone;
    if (--fair_pauses_ == 0) free_blocks_ += borrowed_;
    add(r, 1);
    ++running_;
    generating_ += r.generating ? 1 : 0;
    countAdapters();
  }

  void countAdapters() {
    adapters_.clear();
    adapter_size_ = {};
    for (int32_t i = 0; i < last_running_; ++i) {
      if (!isGone(i)) adapter_size_ += takeAdapters(at(i));
    }
    for (const int32_t i : plan_.started) adapter_size_ += takeAdapters(at(i));
  }

  bool takesRoom(const AdapterUse& use) const {
    return std::find(adapters_.begin(), adapters_.end(), use.number) == adapters_.end();
  }
  bool adaptersFit(const RequestView& r) const {
    AdapterSize size;
    for (const AdapterUse& use : r.adapters) {
      if (takesRoom(use)) size += use.size;
    }
    return size == AdapterSize() || (adapter_size_ + size).within(limits_.adapter_budget);
  }
  AdapterSize takeAdapters(const RequestView& r) {
    AdapterSize size;
    for (const AdapterUse& use : r.adapters) {
      if (!takesRoom(use)) continue;
      adapters_.push_back(use.number);
      size += use.size;
    }
    return size;
  }

  void computes(const RequestView& r) {
    if (!r.generating && r.next_block != 0) computing_.push_back({r.next_block, r.skipped, r.client});
  }
  // Whether another request computes the next block of r. For a skipped request, whose turn may come late, only costly
  // requests of its client wait: they have the same turns. The requests of a static batch start together, so none of
  // them can wait for another.
  bool isComputed(const RequestView& r) const {
    return limits_.policy != CapacitySchedulerPolicy::kSTATIC_BATCH &&
           std::any_of(computing_.begin(), computing_.end(), [&](const ComputedBlock& other) {
             return other.block == r.next_block && (!other.skipped || (r.costly && other.client == r.client));
           });
  }

  void keepContextsWithTokens() {
    std::erase_if(plan_.sequences, [](const PlannedSequence& s) { return s.num_tokens == 0; });
    for (auto& sequence : plan_.sequences) {
      const RequestView& r = at(sequence.request_index);
      sequence.samples = r.num_cached + sequence.num_tokens == r.num_tokens;
      if (!r.running) plan_.started.push_back(sequence.request_index);
    }
    int32_t last_with_adapter = -1;
    for (const int32_t i : plan_.started) {
      if (at(i).adapter != 0) last_with_adapter = i;
    }
    for (const int32_t i : short_of_adapters_) {
      if (last_with_adapter > i) plan_.bypassed.push_back(i);
    }
    const int32_t last = plan_.started.empty() ? -1 : plan_.started.back();
    for (const auto* waiting : {&short_, &skipped_}) {
      for (const int32_t i : *waiting) {
        if (last > i) plan_.bypassed.push_back(i);
      }
    }
  }

  void order() {
    std::sort(plan_.sequences.begin(), plan_.sequences.end(),
              [this](const PlannedSequence& a, const PlannedSequence& b) {
                if (a.context != b.context) return a.context;
                const uint64_t of_a = at(a.request_index).adapter, of_b = at(b.request_index).adapter;
                return of_a != of_b ? of_a < of_b : a.request_index < b.request_index;
              });
  }

  const SchedulerLimits& limits_;
  const StepRoom& room_;
  const std::span<const RequestView> requests_;
  SchedulerPlan& plan_;
  bool several_clients_ = false;
  bool overdue_started_ = false;  // a skipped one
  int32_t num_running_ = 0;
  int32_t last_running_ = 0;  // running requests that were not paused for lack of blocks
  int32_t running_ = 0;       // including starting requests, excluding paused ones
  int32_t generating_ = 0;    // of running_
  int32_t free_blocks_;
  int32_t borrowed_ = 0;     // blocks that starting requests share with running ones
  int32_t fair_pauses_ = 0;  // pauses for other clients
  AdapterSize adapter_size_;
  std::vector<uint64_t>& adapters_;
  std::vector<ComputedBlock>& computing_;
  std::vector<int32_t>& short_of_adapters_;
  std::vector<int32_t>& skipped_;
  std::vector<int32_t>& short_;
  std::vector<ClientTally>& tallies_;
  std::vector<uint8_t>& gone_;
};

}  // namespace

void SchedulerPlan::reserve(size_t requests, size_t running) {
  paused.reserve(running);
  started.reserve(requests);
  bypassed.reserve(requests);
  sequences.reserve(requests);
  scratch.computing.reserve(requests);
  scratch.short_of_adapters.reserve(requests);
  scratch.skipped.reserve(requests);
  scratch.short_of_blocks.reserve(requests);
  scratch.clients.reserve(requests);
  scratch.gone.reserve(running);
  scratch.lanes.reserve(running);
}

int32_t blocksLacking(const SchedulerLimits& limits, const RequestView& request) {
  // Blocks that it reuses may be free ones.
  return blocksKept(limits, request) - request.blocks_held + request.blocks_taken;
}

void schedule(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests,
              SchedulerPlan& plan) {
  assert(limits.max_batch_size > 0 && limits.max_num_tokens > 0 && limits.kv.tokens_per_block > 0);
  assert(room.free_blocks >= 0 && room.free_blocks <= limits.kv_blocks);
  Pass(limits, room, requests, plan).run();
}

}  // namespace chorus
