#include "runtime/step_loop.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/log.h"

namespace chorus {

StepLoop::StepLoop(const CoreOptions& options, const LogitsPostProcessors& post_processors, RequestTable& requests,
                   Admission& admission, StepRunner& runner)
    : options_(options),
      post_processors_(post_processors),
      requests_(requests),
      admission_(admission),
      runner_(runner),
      blocks_(options),
      kv_(options.kvSizes()),
      candidates_(options, admission, blocks_),
      builder_(options.scheduler.max_batch_size, options.scheduler.max_num_tokens),
      costly_rows_(kv_, options.scheduler.chunked_context),
      sampler_(options.requests.vocab_size + options.requests.added_tokens, options.sampler_threads) {
  const auto slots = static_cast<size_t>(options.scheduler.max_batch_size);
  plan_.reserve(StepCandidates::maxCandidates(options), slots);
  running_.reserve(slots);
}

bool StepLoop::plan() {
  const bool several_clients = admission_.queue().numClients() > 1;
  const auto now = Clock::now();
  if (several_clients) step_times_.shared(now);
  const bool limits_costly =
      step_times_.isShared(now) && options_.scheduler.policy != executor::CapacitySchedulerPolicy::kSTATIC_BATCH;
  std::optional<StepPrices> costly_prices;
  if (limits_costly) costly_prices = step_times_.prices();
  candidates_.collect(running_, costly_prices, steps_);
  if (limits_costly)
    planLimited(now);
  else
    planUnlimited(now);
  applyPlan();
  return !plan_.sequences.empty();
}

void StepLoop::planUnlimited(Clock::time_point now) {
  const std::span<const RequestView> views = candidates_.views();
  costly_rows_.beginUnlimited(views.size());
  scheduleStep(now, std::count_if(views.begin(), views.end(), [](const RequestView& view) { return view.generating; }));
}

// Plans a step with limited rows. If that leaves nothing to run, the limits on costly ones yield.
void StepLoop::planLimited(Clock::time_point now) {
  const std::span<RequestView> views = candidates_.views();
  const auto skipNobody = [&] {
    for (RequestView& view : views) view.skipped = false;
  };
  const auto planWithLimits = [&] {
    const int64_t most_rows =
        row_shares_.begin(views, step_times_.generatedRows(now, admission_.queue().numClients()), now);
    const int64_t rows = std::min<int64_t>(std::ssize(running_), most_rows);
    const int32_t tokens = std::max(step_times_.contextTokens(now, rows), options_.scheduler.kv.tokens_per_block);
    const int32_t chunk = std::min(tokens, options_.scheduler.max_num_tokens);
    const int64_t generated = costly_rows_.beginLimited(views, step_times_.prices(), chunk, most_rows, now);
    row_shares_.limit(views, most_rows, steps_);
    scheduleStep(now, std::min<int64_t>(generated, most_rows));
  };
  planWithLimits();
  if (!plan_.sequences.empty()) return;
  // No other request can run, for example because they wait for blocks: the costly ones keep nobody waiting.
  costly_rows_.forgive();
  skipNobody();
  planWithLimits();
  if (!plan_.sequences.empty()) return;
  // Nor can the costly ones that were allowed, so all may try.
  skipNobody();
  scheduleStep(now, 1);
}

// rows: generated rows of the step.
void StepLoop::scheduleStep(Clock::time_point now, int64_t rows) {
  const StepRoom room{.free_blocks = blocks_.freeBlocks(),
                      .turn = steps_,
                      .context_tokens = step_times_.contextTokens(now, rows),
                      .scored_tokens = step_times_.scoredTokens(now, rows)};
  schedule(options_.scheduler, room, candidates_.views(), plan_);
}

void StepLoop::applyPlan() {
  const std::span<Sequence* const> candidates = candidates_.sequences();
  const size_t num_running = running_.size();
  for (size_t i = 0; i < num_running; ++i) {
    if (candidates_.views()[i].skipped) ++candidates[i]->steps_skipped;
  }
  for (const int32_t i : plan_.paused) pause(candidates_.sequenceAt(i));
  for (const int32_t i : plan_.bypassed) ++candidates_.sequenceAt(i).times_bypassed;
  if (plan_.started.empty()) return;
  for (size_t i = num_running; i < static_cast<size_t>(plan_.started.back()); ++i) {
    if (!candidates[i]->adapter.no_room) continue;
    candidates[i]->times_bypassed +=
        static_cast<int32_t>(std::count_if(plan_.started.begin(), plan_.started.end(), [&](int32_t started) {
          return static_cast<size_t>(started) > i && candidates_.sequenceAt(started).adapter.used();
        }));
  }
  for (const int32_t i : plan_.started) start(candidates_.sequenceAt(i));
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
  const auto costs = costly_rows_.count(candidates_.views(), plan_, step_times_.prices());
  step_work_ = {};
  for (const auto& planned : plan_.sequences) {
    Sequence& sequence = plannedAt(planned);
    const int32_t first = sequence.numCached(), count = planned.num_tokens;
    blocks_.extend(sequence, count);
    sequence.ran_at = steps_ - 1;
    const CostlyRows::Cost& cost = costs[step_sequences_.size()];
    step_work_.adapters += cost.adapters;
    (planned.context ? step_work_.context_attention : step_work_.attention) += kv_.attentionSize(first, count);
    const int32_t scored_from = candidates_.viewAt(planned.request_index).scored_from;
    if (planned.context) {
      admission_.charge(sequence, (planned.samples ? kGeneratedCost : 0) + cost.total() * kRowsPerRead);
      step_work_.context_tokens += count;
      step_work_.scored_tokens += std::clamp(first + count - scored_from, 0, count);
    } else {
      admission_.charge(sequence, kGeneratedCost * (1 + cost.total() * kRowsPerRead));
      ++step_work_.generated_rows;
    }
    const bool several_rows = planned.samples && sequence.request.strategy().numRows(sequence) > 1;
    step_sequences_.push_back(
        {sequence.tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first,
         blocks_.tables(sequence, first + count), sequence.adapter.parts.get(),
         several_rows ? LogitsWanted::kAllRows
                      : sequence.request.answerOf(sequence).logitsOfNext(sequence, count, planned.samples)});
  }
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
