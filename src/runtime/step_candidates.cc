#include "runtime/step_candidates.h"

#include <algorithm>

#include "runtime/costly_rows.h"

namespace chorus {
namespace {

// Waiting sequences for which another client's sequence may be paused. Only a few in a step, because viewOf() compares
// each prompt with the prefix cache.
constexpr size_t kMostNewcomers = 8;
// Tokens of sequences with cached prompts that may start in one step. Their start takes time for each token: counts for
// penalties, an index of n-grams, the reuse of blocks. A composition of adapters costs as much as this many tokens.
// Starts of other prompts are limited by the tokens that a step computes.
constexpr int64_t kMostPrepared = 1 << 18, kCompositionCost = 1 << 15;
// Waiting costly sequences that are candidates: of all clients, and of one. After this many of a client its turns end.
constexpr int kMostCostly = 16, kMostCostlyOfClient = 8, kMostCostlySeen = 32;

// Steps since the sequence started. Those that skipped it count a fourth.
int32_t stepsRun(const Sequence& sequence, uint64_t step) {
  const auto steps = static_cast<int32_t>(step - sequence.startedAt());
  return steps - sequence.steps_skipped + sequence.steps_skipped / 4;
}

int32_t scoredFrom(const Sequence& sequence) { return sequence.request.answerOf(sequence).scoredFrom(sequence); }

}  // namespace

StepCandidates::StepCandidates(const CoreOptions& options, Admission& admission, SequenceBlocks& blocks)
    : options_(options), admission_(admission), blocks_(blocks) {
  sequences_.reserve(mostOf(options));
  views_.reserve(mostOf(options));
}

// Bytes of the adapters that a row reads, divided by those of the base model.
double StepCandidates::adapterSize(const AdapterLease& lease) const {
  if (lease.uses.empty() || options_.base_bytes == 0) return 0;
  int64_t bytes = 0;
  for (const AdapterUse& use : lease.uses) bytes += use.size.bytes;
  if (lease.composition != nullptr && lease.composition->terms.size() != lease.uses.size()) {
    // It names an adapter several times, and each term is computed.
    bytes = 0;
    for (const auto& [number, _] : lease.composition->terms) {
      for (const AdapterUse& use : lease.uses) bytes += use.number == number ? use.size.bytes : 0;
    }
  }
  return static_cast<double>(bytes) / static_cast<double>(options_.base_bytes);
}

RequestView StepCandidates::viewOf(Sequence& sequence, uint64_t step) {
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
    view.steps_run = stepsRun(sequence, step);
    view.steps_without_row = static_cast<int32_t>(step - 1 - sequence.ran_at);
  }
  view.adapter_size = adapterSize(sequence.adapter);
  blocks_.view(sequence, view);
  return view;
}

void StepCandidates::add(Sequence& sequence, uint64_t step) {
  sequences_.push_back(&sequence);
  views_.push_back(viewOf(sequence, step));
}

void StepCandidates::collect(std::span<Sequence* const> running, bool limits_costly, uint64_t step) {
  sequences_.clear();
  views_.clear();
  Largest largest;
  for (Sequence* sequence : running) {
    add(*sequence, step);
    const int32_t of_client = FairQueue::runningOf(*sequence), weight = FairQueue::weightOf(*sequence);
    if (of_client * largest.weight > largest.running * weight) largest = {of_client, weight};
  }
  addWaiting(largest, limits_costly, step);
  // A sequence may be paused for another client, or under kMAX_UTILIZATION.
  const bool for_clients = admission_.queue().numClients() > 1 && sequences_.size() > running.size();
  blocks_.countFreed(running, for_clients, views_);
}

// Adds enough sequences for the free slots, and a few newcomers. A client's turns end with its first sequence that
// lacks blocks: the scheduler hardly ever starts one behind it.
void StepCandidates::addWaiting(const Largest& largest, bool limits_costly, uint64_t step) {
  costly_waiting_.clear();
  costly_candidates_ = 0;
  const FairQueue& queue = admission_.queue();
  const bool several_clients = queue.numClients() > 1;
  const size_t free_slots = blocks_.freeSlots();
  int32_t free_blocks = blocks_.freeBlocks();
  for (const RequestView& view : views_) free_blocks -= blocksLacking(options_.scheduler, view);
  size_t ready = 0;
  int64_t prepared = 0;
  admission_.beginTurns();
  for (size_t visited = 0; visited < Admission::kLookahead; ++visited) {
    const bool newcomer =
        several_clients && queue.runningOfNext() * largest.weight < largest.running * queue.weightOfNext();
    if (ready >= free_slots + (newcomer ? kMostNewcomers : 0) || prepared >= kMostPrepared) break;
    Sequence* sequence = admission_.nextTurn();
    if (sequence == nullptr) break;
    const bool costly = limits_costly && sequence->adapter.ready() && isCostly(*sequence);
    if (costly && !takeCostly(*sequence)) continue;
    add(*sequence, step);
    RequestView& view = views_.back();
    const bool lacks_blocks = blocksLacking(options_.scheduler, view) > free_blocks;
    view.has_place = ready < free_slots && !lacks_blocks;
    if (costly && !view.has_place) {
      --costly_candidates_;
      admission_.endTurnsOf(*sequence);
    }
    // CostlyRows lets only a few of the costly ones start, so they take no other's place.
    if (costly || !sequence->adapter.ready()) continue;
    ++ready;
    if (lacks_blocks) {
      admission_.endTurnsOf(*sequence);
      continue;
    }
    if (!view.can_reuse_next) prepared += sequence->numTokens();
    if (sequence->adapter.composition != nullptr) prepared += kCompositionCost;
  }
}

bool StepCandidates::isCostly(const Sequence& sequence) const {
  return CostlyRows::isCostly(adapterSize(sequence.adapter), scoredFrom(sequence), sequence.numTokens());
}

// Whether a waiting costly sequence becomes a candidate. Only the first ones of each client do, and only a few of all.
bool StepCandidates::takeCostly(const Sequence& sequence) {
  const auto client = FairQueue::clientOf(sequence);
  auto waiting = std::find_if(costly_waiting_.begin(), costly_waiting_.end(),
                              [&](const CostlyWaiting& other) { return other.client == client; });
  if (waiting == costly_waiting_.end()) waiting = costly_waiting_.insert(waiting, {client, 0});
  ++waiting->seen;
  if (waiting->seen >= kMostCostlySeen) admission_.endTurnsOf(sequence);
  if (waiting->seen > kMostCostlyOfClient || costly_candidates_ == kMostCostly) return false;
  ++costly_candidates_;
  return true;
}

}  // namespace chorus
