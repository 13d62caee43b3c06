#include "runtime/step_candidates.h"

#include <algorithm>

namespace chorus {
namespace {

// A newcomer is a waiting sequence whose client runs fewer sequences for its weight than another client, of which one
// may be paused for it. Only a few are candidates beyond the free slots, because viewOf() compares each prompt with the
// prefix cache.
constexpr size_t kMostNewcomers = 8;
// Tokens of sequences with cached prompts that may start in one step. Their start takes time for each token: counts for
// penalties, an index of n-grams, the reuse of blocks. A composition of adapters costs as much as this many tokens.
// Starts of other prompts are limited by the tokens that a step computes.
constexpr int64_t kMostPrepared = 1 << 18, kCompositionCost = 1 << 15;
constexpr int kMostCostly = 16;         // waiting costly candidates of a step
constexpr int kMostCostlyOfClient = 8;  // costly sequences of a client that may become candidates
constexpr int kMostCostlySeen = 32;     // after so many of a client its turns end

// Bytes of the adapters that a row reads, divided by those of the base model.
double adapterSize(const AdapterLease& lease, int64_t base_bytes) {
  if (lease.uses.empty() || base_bytes == 0) return 0;
  int64_t bytes = 0;
  for (const AdapterUse& use : lease.uses) bytes += use.size.bytes;
  if (lease.composition != nullptr && lease.composition->terms.size() != lease.uses.size()) {
    // It names an adapter several times, and each term is computed.
    bytes = 0;
    for (const auto& [number, _] : lease.composition->terms) {
      for (const AdapterUse& use : lease.uses) bytes += use.number == number ? use.size.bytes : 0;
    }
  }
  return static_cast<double>(bytes) / static_cast<double>(base_bytes);
}

// Steps since the sequence started. Those that skipped it count a fourth.
int32_t stepsRun(const Sequence& sequence, uint64_t step) {
  const auto steps = static_cast<int32_t>(step - sequence.startedAt());
  return steps - sequence.steps_skipped + sequence.steps_skipped / 4;
}

int32_t scoredFrom(const Sequence& sequence) { return sequence.request.answerOf(sequence).scoredFrom(sequence); }

}  // namespace

StepCandidates::StepCandidates(const CoreOptions& options, Admission& admission, SequenceBlocks& blocks)
    : options_(options), kv_(options.kvSizes()), admission_(admission), blocks_(blocks) {
  sequences_.reserve(maxCandidates(options));
  views_.reserve(maxCandidates(options));
}

RequestView StepCandidates::viewOf(Sequence& sequence) {
  RequestView view;
  view.num_tokens = sequence.numTokens();
  view.final_cached = sequence.maxTokens() - 1;
  view.running = sequence.runs();
  view.generating = sequence.generates();
  view.was_paused = sequence.wasPaused();
  if (!view.generating) view.scored_from = scoredFrom(sequence);
  view.adapter = sequence.adapter.number;
  view.adapters = sequence.adapter.uses;
  view.adapter_ready = sequence.adapter.ready();
  view.times_bypassed = sequence.times_bypassed;
  view.client = FairQueue::clientOf(sequence);
  view.weight = FairQueue::weightOf(sequence);
  view.priority = sequence.position.priority;
  if (view.running) {
    view.steps_run = stepsRun(sequence, step_);
    view.steps_without_row = static_cast<int32_t>(step_ - 1 - sequence.ran_at);
  }
  view.adapter_size = adapterSize(sequence.adapter, options_.base_bytes);
  blocks_.view(sequence, view);
  return view;
}

void StepCandidates::add(Sequence& sequence) {
  sequences_.push_back(&sequence);
  views_.push_back(viewOf(sequence));
}

void StepCandidates::collect(std::span<Sequence* const> running, const std::optional<StepPrices>& costly_prices,
                             uint64_t step) {
  step_ = step;
  sequences_.clear();
  views_.clear();
  Largest largest;
  for (Sequence* sequence : running) {
    add(*sequence);
    const int32_t of_client = FairQueue::runningOf(*sequence), weight = FairQueue::weightOf(*sequence);
    if (of_client * largest.weight > largest.running * weight) largest = {of_client, weight};
  }
  addWaiting(largest, costly_prices);
  // The scheduler needs to know what a pause would free.
  const bool for_clients = admission_.queue().numClients() > 1 && sequences_.size() > running.size();
  blocks_.countFreed(running, for_clients, views_);
}

// Adds enough sequences for the free slots, and a few newcomers. A client's turns end with its first sequence that
// lacks blocks, because the scheduler hardly ever starts one behind it.
void StepCandidates::addWaiting(const Largest& largest, const std::optional<StepPrices>& costly_prices) {
  costly_waiting_.clear();
  costly_admitted_ = 0;
  const FairQueue& queue = admission_.queue();
  const bool several_clients = queue.numClients() > 1;
  const size_t free_slots = blocks_.freeSlots();
  int32_t free_blocks = blocks_.freeBlocks();
  for (const RequestView& view : views_) free_blocks -= blocksLacking(options_.scheduler, view);
  size_t startable = 0;
  int64_t prepared = 0;
  admission_.beginTurns();
  for (size_t visited = 0; visited < Admission::kLookahead; ++visited) {
    const bool newcomer =
        several_clients && queue.runningOfNext() * largest.weight < largest.running * queue.weightOfNext();
    if (startable >= free_slots + (newcomer ? kMostNewcomers : 0) || prepared >= kMostPrepared) break;
    Sequence* sequence = admission_.nextTurn();
    if (sequence == nullptr) break;
    const bool costly = costly_prices && sequence->adapter.ready() && isCostly(*sequence, *costly_prices);
    if (costly && !admitCostly(*sequence)) continue;
    add(*sequence);
    RequestView& view = views_.back();
    const bool lacks_blocks = blocksLacking(options_.scheduler, view) > free_blocks;
    view.has_place = startable < free_slots && !lacks_blocks;
    if (costly && !view.has_place) {  // it cannot start, so it takes no other's place among the few
      --costly_admitted_;
      admission_.endTurnsOf(*sequence);
    }
    // Costly ones take no slots of others here, because only a few of them start.
    if (costly || !sequence->adapter.ready()) continue;
    ++startable;
    if (lacks_blocks) {
      admission_.endTurnsOf(*sequence);
      continue;
    }
    if (!view.can_reuse_next) prepared += sequence->numTokens();
    if (sequence->adapter.composition != nullptr) prepared += kCompositionCost;
  }
}

bool StepCandidates::isCostly(const Sequence& sequence, const StepPrices& prices) const {
  return isCostlyAdapter(adapterSize(sequence.adapter, options_.base_bytes)) ||
         scoredFrom(sequence) < sequence.numTokens() || isCostlyAttention(prices, kv_, sequence.numTokens(), false);
}

// Counts a waiting costly sequence, and returns whether it becomes a candidate. May end its client's turns.
bool StepCandidates::admitCostly(const Sequence& sequence) {
  const auto client = FairQueue::clientOf(sequence);
  auto waiting = std::find_if(costly_waiting_.begin(), costly_waiting_.end(),
                              [&](const CostlyWaiting& other) { return other.client == client; });
  if (waiting == costly_waiting_.end()) waiting = costly_waiting_.insert(waiting, {client, 0});
  ++waiting->seen;
  if (waiting->seen >= kMostCostlySeen) admission_.endTurnsOf(sequence);
  if (waiting->seen > kMostCostlyOfClient || costly_admitted_ == kMostCostly) return false;
  ++costly_admitted_;
  return true;
}

}  // namespace chorus
