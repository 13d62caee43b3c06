#include "runtime/step_loop.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "models/adapter_groups.h"

namespace chorus {

StepLoop::StepLoop(const CoreOptions& options, const LogitsPostProcessors& post_processors, RequestTable& requests,
                   Admission& admission, StepRunner& runner)
    : options_(options),
      post_processors_(post_processors),
      requests_(requests),
      admission_(admission),
      runner_(runner),
      blocks_(options),
      builder_(options.scheduler.max_batch_size, options.scheduler.max_num_tokens),
      sampler_(options.requests.vocab_size + options.requests.added_tokens, options.sampler_threads) {
  const auto slots = static_cast<size_t>(options.scheduler.max_batch_size);
  candidates_.reserve(slots + Admission::kLookahead);
  views_.reserve(candidates_.capacity());
  plan_.reserve(views_.capacity(), slots);
  running_.reserve(slots);
}

// Bytes of the adapters that a row reads, divided by those of the base model.
double StepLoop::adapterSize(const AdapterLease& lease) const {
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

RequestView StepLoop::viewOf(Sequence& sequence) {
  RequestView view;
  view.num_tokens = sequence.numTokens();
  view.final_cached = sequence.maxTokens() - 1;
  view.running = sequence.runs();
  view.generating = sequence.generates();
  view.was_paused = sequence.wasPaused();
  if (!view.generating) view.scored_from = sequence.request.answerOf(sequence).scoredFrom(sequence);
  view.adapter = sequence.adapter.number;
  view.adapters = sequence.adapter.uses;
  view.adapter_ready = sequence.adapter.ready();
  view.times_bypassed = sequence.times_bypassed;
  view.client = FairQueue::clientOf(sequence);
  view.weight = FairQueue::weightOf(sequence);
  view.priority = sequence.position.priority;
  if (view.running) {
    view.steps_run = static_cast<int32_t>(steps_ - sequence.startedAt()) - 3 * (sequence.steps_skipped / 4);
    view.steps_without_row = static_cast<int32_t>(steps_ - 1 - sequence.ran_at);
  }
  view.adapter_size = adapterSize(sequence.adapter);
  blocks_.view(sequence, view);
  return view;
}

bool StepLoop::plan() {
  candidates_.clear();
  views_.clear();
  const auto add = [this](Sequence& sequence) {
    candidates_.push_back(&sequence);
    views_.push_back(viewOf(sequence));
  };
  int64_t most_running = 0, weight_of_most = 1;  // of the client with the most running sequences for its weight
  for (Sequence* sequence : running_) {
    add(*sequence);
    const int32_t running = FairQueue::runningOf(*sequence), weight = FairQueue::weightOf(*sequence);
    if (running * weight_of_most <= most_running * weight) continue;
    most_running = running;
    weight_of_most = weight;
  }
  // Adds enough waiting sequences for the free slots, and a few newcomers for which another client's sequence may be
  // paused. Only a few per step, because viewOf() compares each prompt with the prefix cache. For the same reason a
  // client's turns end with its first sequence that lacks blocks: the scheduler hardly ever starts one behind it.
  constexpr size_t kMostNewcomers = 8;
  // Tokens of sequences with cached prompts that may start in one step. Their start takes time for each token: counts
  // for penalties, an index of n-grams, the reuse of blocks. A composition of adapters costs as much as this many
  // tokens. Starts of other prompts are limited by the tokens that a step computes.
  constexpr int64_t kMostPrepared = 1 << 18, kCompositionCost = 1 << 15;
  const FairQueue& queue = admission_.queue();
  const bool several_clients = queue.numClients() > 1;
  const auto now = Clock::now();
  if (several_clients) step_times_.shared(now);
  const bool limited =
      step_times_.isShared(now) && options_.scheduler.policy != executor::CapacitySchedulerPolicy::kSTATIC_BATCH;
  costly_waiting_.clear();
  costly_candidates_ = 0;
  const size_t free = blocks_.freeSlots();
  size_t ready = 0;
  int64_t prepared = 0;
  int32_t free_blocks = blocks_.freeBlocks();
  for (const RequestView& view : views_) free_blocks -= blocksLacking(options_.scheduler, view);
  admission_.beginTurns();
  for (size_t visited = 0; visited < Admission::kLookahead; ++visited) {
    const bool newcomer =
        several_clients && queue.runningOfNext() * weight_of_most < most_running * queue.weightOfNext();
    if (ready >= free + (newcomer ? kMostNewcomers : 0) || prepared >= kMostPrepared) break;
    Sequence* sequence = admission_.nextTurn();
    if (sequence == nullptr) break;
    const bool costly = limited && sequence->adapter.ready() && isCostly(*sequence);
    if (costly && !addCostly(*sequence)) continue;
    add(*sequence);
    views_.back().has_place = ready < free && blocksLacking(options_.scheduler, views_.back()) <= free_blocks;
    if (costly && !views_.back().has_place) {
      --costly_candidates_;
      admission_.endTurnsOf(*sequence);
    }
    // CostlyRows lets only a few of the costly ones start, so they take no other's place.
    if (costly || !sequence->adapter.ready()) continue;
    ++ready;
    if (blocksLacking(options_.scheduler, views_.back()) > free_blocks) {
      admission_.endTurnsOf(*sequence);
    } else {
      if (!views_.back().can_reuse_next) prepared += sequence->numTokens();
      if (sequence->adapter.composition != nullptr) prepared += kCompositionCost;
    }
  }
  // A sequence may be paused for another client, or under kMAX_UTILIZATION.
  blocks_.countFreed(running_, several_clients && candidates_.size() > running_.size(), views_);
  const auto makePlan = [&] {
    double reads = readsOf(static_cast<int64_t>(running_.size()));
    if (limited) {
      const int32_t tokens =
          std::max(step_times_.contextTokens(now, std::max(reads, 1.0)), options_.scheduler.kv.tokens_per_block);
      const int32_t chunk = std::min(tokens, options_.scheduler.max_num_tokens);
      reads = costly_rows_.beginLimited(views_, step_times_.prices(), chunk, now);
    } else {
      reads = costly_rows_.beginUnlimited(views_);
    }
    scheduleStep(now, std::max(reads, 1.0));
  };
  const auto skipNobody = [&] {
    for (RequestView& view : views_) view.skipped = false;
  };
  makePlan();
  if (limited && plan_.sequences.empty()) {
    // The requests without costs cannot run, for example because they wait for blocks.
    costly_rows_.forgive();
    skipNobody();
    makePlan();
  }
  if (limited && plan_.sequences.empty()) {
    // Nor can the costly requests that are not skipped.
    skipNobody();
    scheduleStep(now, 1);
  }
  applyPlan();
  return !plan_.sequences.empty();
}

bool StepLoop::isCostly(const Sequence& sequence) const {
  return CostlyRows::isCostly(adapterSize(sequence.adapter)) ||
         sequence.request.answerOf(sequence).scoredFrom(sequence) < sequence.numTokens();
}

// Whether a waiting costly sequence becomes a candidate. Only the first ones of each client do, and only a few of all.
bool StepLoop::addCostly(const Sequence& sequence) {
  constexpr int kMostOfClient = 8, kMost = 16;
  constexpr int kMostPassed = 32;  // of a client; then its turns end
  const auto client = FairQueue::clientOf(sequence);
  auto seen = std::find_if(costly_waiting_.begin(), costly_waiting_.end(),
                           [&](const auto& waiting) { return waiting.first == client; });
  if (seen == costly_waiting_.end()) seen = costly_waiting_.insert(seen, {client, 0});
  const int number = ++seen->second;
  if (number >= kMostPassed) admission_.endTurnsOf(sequence);
  if (number > kMostOfClient || costly_candidates_ == kMost) return false;
  ++costly_candidates_;
  return true;
}

// reads: of the generated rows of the step.
void StepLoop::scheduleStep(Clock::time_point now, double reads) {
  const StepRoom room{.free_blocks = blocks_.freeBlocks(),
                      .turn = steps_,
                      .context_tokens = step_times_.contextTokens(now, reads),
                      .scored_tokens = step_times_.scoredTokens(now, reads)};
  schedule(options_.scheduler, room, views_, plan_);
}

void StepLoop::applyPlan() {
  const auto at = [this](int32_t i) { return candidates_[static_cast<size_t>(i)]; };
  const size_t num_running = running_.size();
  for (size_t i = 0; i < num_running; ++i) {
    if (views_[i].skipped) ++candidates_[i]->steps_skipped;
  }
  for (const int32_t i : plan_.paused) pause(*at(i));
  for (const int32_t i : plan_.bypassed) ++at(i)->times_bypassed;
  if (plan_.started.empty()) return;
  for (size_t i = num_running; i < static_cast<size_t>(plan_.started.back()); ++i) {
    if (!candidates_[i]->adapter.no_room) continue;
    candidates_[i]->times_bypassed +=
        static_cast<int32_t>(std::count_if(plan_.started.begin(), plan_.started.end(), [&](int32_t started) {
          return static_cast<size_t>(started) > i && at(started)->adapter.used();
        }));
  }
  for (const int32_t i : plan_.started) start(*at(i));
}

// If it throws, the sequences that started before take part in the next plan.
void StepLoop::start(Sequence& sequence) {
  try {
    sequence.request.strategy().prepare(sequence);
    blocks_.prepare(sequence);
    admission_.prepareStart(sequence);
  } catch (const std::exception& error) {
    requests_.decide(sequence.request, error);
    throw;
  }
  sequence.times_bypassed = 0;
  admission_.started(sequence);
  blocks_.start(sequence, steps_);
  running_.push_back(&sequence);
}

void StepLoop::pause(Sequence& sequence) noexcept {
  admission_.paused(sequence);
  blocks_.release(sequence);
  std::erase(running_, &sequence);
  sequence.request.strategy().forget(sequence);
  sequence.request.answerOf(sequence).countPause(steps_);
  sequence.pause();
  ++pauses_;
}

void StepLoop::release(Sequence& sequence) noexcept {
  if (sequence.runs()) {
    std::erase(running_, &sequence);
    blocks_.release(sequence);
  }
  blocks_.leaveCacheNamespace(sequence);
}

// A generated token takes a row of a step of its own, which is why it costs more than a token of a prompt.
constexpr double kGeneratedCost = 2;

void StepLoop::begin(Clock::time_point now) {
  changes_.clear();
  network_began_ = network_ended_ = now;
  step_stats_ = {};
  step_stats_.iter = steps_++;
  for (const auto& planned : plan_.sequences) {
    const Sequence& sequence = plannedAt(planned);
    Answer& answer = sequence.request.answerOf(sequence);
    if (!answer.step(now, step_stats_.iter)) continue;
    ++step_stats_.numNewActiveRequests;
    step_stats_.newActiveRequestsQueueLatencyMS += answer.queueLatencyMs();
  }
  step_sequences_.clear();
  const auto costs = costly_rows_.count(views_, plan_, step_times_.prices());
  step_work_ = {};
  int64_t generated = 0;
  for (const auto& planned : plan_.sequences) {
    Sequence& sequence = plannedAt(planned);
    const int32_t first = sequence.numCached(), count = planned.num_tokens;
    blocks_.extend(sequence, count);
    sequence.ran_at = steps_ - 1;
    const CostlyRows::Cost& cost = costs[step_sequences_.size()];
    step_work_.reads += cost.adapters;
    const int32_t scored_from = views_[static_cast<size_t>(planned.request_index)].scored_from;
    if (planned.context) {
      admission_.charge(sequence, (planned.samples ? kGeneratedCost : 0) + cost.total() * kRowsPerRead);
      step_work_.context_tokens += count;
      step_work_.scored_tokens += std::clamp(first + count - scored_from, 0, count);
    } else {
      admission_.charge(sequence, kGeneratedCost * (1 + cost.total() * kRowsPerRead));
      ++generated;
    }
    const bool several_rows = planned.samples && sequence.request.strategy().numRows(sequence) > 1;
    step_sequences_.push_back(
        {sequence.tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first,
         blocks_.tables(sequence, first + count), sequence.adapter.parts.get(),
         several_rows ? LogitsWanted::kAllRows
                      : sequence.request.answerOf(sequence).logitsOfNext(sequence, count, planned.samples)});
  }
  step_work_.reads += readsOf(std::max<int64_t>(generated, 1));
  countStep();
}

void StepLoop::countStep() {
  executor::IterationStats& stats = step_stats_;
  stats.numActiveRequests = static_cast<int32_t>(running_.size());
  stats.numQueuedRequests = static_cast<int32_t>(admission_.queue().numWaiting());
  stats.maxNumActiveRequests = stats.maxBatchSizeStatic = stats.maxBatchSizeRuntime = options_.scheduler.max_batch_size;
  stats.maxNumTokensStatic = stats.maxNumTokensRuntime = options_.scheduler.max_num_tokens;
  std::vector<uint64_t>& adapters = step_adapters_;
  adapters.clear();
  for (const auto& planned : plan_.sequences) {
    (planned.context ? stats.numContextRequests : stats.numGenRequests) += 1;
    if (planned.context) stats.numCtxTokens += planned.num_tokens;
    for (const AdapterUse& use : plannedAt(planned).adapter.uses) adapters.push_back(use.number);
  }
  std::sort(adapters.begin(), adapters.end());
  stats.numAdapters = static_cast<int32_t>(std::unique(adapters.begin(), adapters.end()) - adapters.begin());
  const auto scheduled = static_cast<int32_t>(plan_.sequences.size());
  if (options_.static_batching) {
    stats.staticBatchingStats = {scheduled, stats.numContextRequests, stats.numCtxTokens, stats.numGenRequests,
                                 options_.scheduler.max_batch_size - stats.numGenRequests};
  } else {
    stats.inflightBatchingStats = {scheduled,
                                   stats.numContextRequests,
                                   stats.numGenRequests,
                                   static_cast<int32_t>(plan_.paused.size()),
                                   stats.numCtxTokens,
                                   0,
                                   stats.numGenRequests > 0 ? 1.0f : 0.0f};
  }
  stats.kvCacheStats = blocks_.count();
}

void StepLoop::run() {
  const StepInput& input = builder_.build(step_sequences_);
  beginMasks();
  network_began_ = network_ended_ = Clock::now();
  const auto logits = runner_.run(input);
  network_ended_ = Clock::now();
  const int64_t width = logitsWidth(input, options_.requests.vocab_size);
  if (logits.size() != input.logits_rows.size() * static_cast<size_t>(width)) {
    fail(ErrorCode::kInternal, "the network returned {} logits for {} rows", logits.size(), input.logits_rows.size());
  }
  collectInputs(logits, width);
  postProcess();
  finishMasks();
  sample_outputs_.resize(sample_inputs_.size());
  sampler_.sample(sample_inputs_, sample_outputs_);
  keepPromptScores();
  step_times_.ran(step_work_, Clock::now() - network_began_);
  advance();
}

void StepLoop::failRunning(const std::exception& error) noexcept {
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  try {
    const std::string message = std::string("Encountered an error in forwardAsync function: ") + error.what();
    log::error("{}", message);
    const Error failure(no_memory ? ErrorCode::kExhausted : ErrorCode::kInternal, message);
    for (const Sequence* sequence : running_) requests_.decide(sequence->request, failure);
  } catch (const std::exception&) {
    for (const Sequence* sequence : running_) requests_.decide(sequence->request, error);
  }
}

}  // namespace chorus
