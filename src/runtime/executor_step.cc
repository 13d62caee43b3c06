// One step of ExecutorCore: plan, build, run, sample, respond.
#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "models/adapter_groups.h"
#include "runtime/executor_core.h"

namespace chorus {
namespace {

// Error for logits that are not finite: kInvalidArgument for a composition, because the client chose its weights.
Error notFinite(const ActiveRequest& request) {
  if (request.post_processing.wanted()) {
    return {ErrorCode::kInternal,
            "The logits are not finite numbers after the logits post-processor: no token can be chosen"};
  }
  if (!request.composition.empty()) {
    return {ErrorCode::kInvalidArgument,
            "The logits are not finite numbers with these weights of the adapters: use smaller weights"};
  }
  return {ErrorCode::kInternal, "The model's logits are not finite numbers: no token can be chosen"};
}

}  // namespace

using executor::FinishReason;

void ExecutorCore::plan() {
  candidates_.clear();
  views_.clear();
  const auto add = [this](ActiveRequest& request) {
    candidates_.push_back(&request);
    views_.push_back(viewOf(request));
  };
  int32_t most_running = 0;  // maximum over clients of running sequences
  for (ActiveRequest* request : running_) {
    add(*request);
    most_running = std::max(most_running, FairQueue::runningOf(*request));
  }
  // Adds enough waiting sequences for the free slots, and a few newcomers for which another client's sequence may be
  // paused. Only a few per step, because viewOf() compares each prompt with the prefix cache.
  constexpr size_t kMostNewcomers = 8;
  const size_t free = free_slots_.size();
  size_t ready = 0;
  waiting_.beginTurns();
  while (candidates_.size() < running_.size() + kLookahead) {
    const bool newcomer = waiting_.numClients() > 1 && waiting_.runningOfNext() < most_running;
    if (ready >= free + (newcomer ? kMostNewcomers : 0)) break;
    auto* request = static_cast<ActiveRequest*>(waiting_.nextTurn());
    if (request == nullptr) break;
    add(*request);
    if (request->adapter.ready()) ++ready;
  }
  countFreed();
  const auto now = Clock::now();
  if (waiting_.numClients() > 1) step_times_.shared(now);
  const StepRoom room{
      .free_blocks = blocks_.freeBlocks(), .turn = iterations_, .context_tokens = step_times_.contextTokens(now)};
  schedule(options_.scheduler, room, views_, plan_);
  applyPlan();
}

void ExecutorCore::applyPlan() {
  const auto at = [this](int32_t i) { return candidates_[static_cast<size_t>(i)]; };
  const size_t num_running = running_.size();
  for (const int32_t i : plan_.paused) pause(at(i));
  for (const int32_t i : plan_.bypassed) ++at(i)->times_bypassed;
  if (plan_.started.empty()) return;
  for (size_t i = num_running; i < static_cast<size_t>(plan_.started.back()); ++i) {
    if (!candidates_[i]->adapter.no_room) continue;
    candidates_[i]->times_bypassed +=
        static_cast<int32_t>(std::count_if(plan_.started.begin(), plan_.started.end(), [&](int32_t started) {
          return static_cast<size_t>(started) > i && at(started)->adapter.used();
        }));
  }
  for (const int32_t i : plan_.started) {
    ActiveRequest& request = *at(i);
    try {
      request.prepare();
      blocks_.prepare(request.cache_scope);
      adapters_->ensure(request.adapter);
    } catch (const std::exception& error) {
      // Requests that this loop started before take part in the next step's plan.
      decide(request, error);
      throw;
    }
    start(request);
  }
  queueMoved();
}

void ExecutorCore::pause(ActiveRequest* request) {
  adapters_->leave(request->adapter);
  blocks_.release(request->slot);
  free_slots_.push_back(request->slot);
  request->pause(iterations_);
  std::erase(running_, request);
  waiting_.pause(*request);
}

bool ExecutorCore::runStep() {
  if (plan_.sequences.empty()) return false;
  const auto begin = Clock::now();
  try {
    joinStep(begin);
    buildSequences();
    beginStats();
    const StepInput& input = builder_.build(sequences_);
    const auto run_begin = Clock::now();
    const auto logits = runner_->run(input);
    step_times_.ran(step_stats_.numCtxTokens, Clock::now() - run_begin);
    const int64_t width = logitsWidth(input, options_.requests.vocab_size);
    if (logits.size() != input.logits_rows.size() * static_cast<size_t>(width)) {
      fail(ErrorCode::kInternal, "the network returned {} logits for {} rows", logits.size(), input.logits_rows.size());
    }
    sampleAndRespond(logits, width);
  } catch (const std::exception& error) {
    failRunning(error);
  }
  endStats(begin);
  return true;
}

void ExecutorCore::buildSequences() {
  sequences_.clear();
  for (const auto& planned : plan_.sequences) {
    ActiveRequest& request = *candidates_[static_cast<size_t>(planned.request_index)];
    extend(request);
    const auto table = blocks_.table(request.slot);
    const int32_t end = request.num_cached + planned.num_tokens;
    sequences_.push_back(
        {request.tokens().subspan(static_cast<size_t>(request.num_cached), static_cast<size_t>(planned.num_tokens)),
         request.num_cached, table.first(static_cast<size_t>(blocks_.blocksFor(end))), request.adapter.parts.get(),
         request.logitsOfNext(planned.num_tokens, planned.samples)});
  }
}

// logits: [rows, width].
void ExecutorCore::sampleAndRespond(std::span<const float> logits, int64_t width) {
  const int32_t model_vocab = options_.requests.vocab_size;
  const auto requestOf = [this](size_t i) -> ActiveRequest& {
    return *candidates_[static_cast<size_t>(plan_.sequences[i].request_index)];
  };
  sampling_.clear();
  sample_inputs_.clear();
  scoring_.clear();
  score_inputs_.clear();
  for (size_t i = 0; i < plan_.sequences.size(); ++i) {
    const auto& planned = plan_.sequences[i];
    ActiveRequest& request = requestOf(i);
    request.num_cached += planned.num_tokens;
    commitBlocks(request);
    const RowRange range = builder_.logitsOf(i);
    const int32_t rows = range.end - range.begin;
    if (rows == 0) continue;
    // The row's valid columns are the vocabulary of the model, or of its adapter if larger. The step is as wide as its
    // widest adapter's vocabulary.
    const PreparedAdapter* adapter = request.adapter.parts.get();
    const int64_t added_to = adapter != nullptr ? adapter->vocabSize() : 0;
    const LogitsRows own{logits.data() + range.begin * width, rows,
                         std::max(model_vocab, static_cast<int32_t>(added_to)), width};
    request.scorePrompt(own, request.num_cached - rows, score_inputs_);
    scoring_.resize(score_inputs_.size(), i);
    request.keepLogits(own, request.num_cached - rows, planned.samples);
    if (!planned.samples) continue;
    sampling_.push_back(i);
    sample_inputs_.push_back(request.sampleInput(own.row(rows - 1)));
  }
  sample_outputs_.resize(sample_inputs_.size());
  postProcess();
  sampler_.sample(sample_inputs_, sample_outputs_);
  score_outputs_.resize(score_inputs_.size());
  sampler_.sample(score_inputs_, score_outputs_);
  const auto lacks_memory = [](const SampleOutput& output) { return output.fault == SampleOutput::Fault::kNoMemory; };
  if (std::any_of(score_outputs_.begin(), score_outputs_.end(), lacks_memory)) throw std::bad_alloc();
  for (size_t s = 0; s < scoring_.size(); ++s) requestOf(scoring_[s]).keepPromptScore(score_outputs_[s]);

  const auto now = Clock::now();
  for (size_t s = 0; s < sampling_.size(); ++s) {
    ActiveRequest& request = requestOf(sampling_[s]);
    if (!sample_errors_[s].empty()) {
      log::warn("request {}: {}", request.requestId(), sample_errors_[s]);
      end(request, request.errorResponse(ErrorCode::kInternal, sample_errors_[s]));
      continue;
    }
    if (sample_outputs_[s].fault == SampleOutput::Fault::kNotFinite) {
      const Error fault = notFinite(request);
      end(request, request.errorResponse(fault.code(), fault.what()));
      continue;
    }
    if (sample_outputs_[s].fault == SampleOutput::Fault::kNoMemory) throw std::bad_alloc();
    if (sample_outputs_[s].fault == SampleOutput::Fault::kNothingLeft) {
      end(request,
          request.errorResponse(ErrorCode::kInvalidArgument,
                                "badWords, noRepeatNgramSize, minTokens and embeddingBias together ban every token"));
      continue;
    }
    request.generating = true;
    const FinishReason reason = request.append(sample_outputs_[s], now);
    if (reason != FinishReason::kNOT_FINISHED)
      end(request, request.response(reason));
    else if (request.streaming())
      respond(request, request.response(reason));
  }
}

// Runs the clients' logits post-processors and passes their logits to the sampler.
void ExecutorCore::postProcess() {
  sample_errors_.assign(sample_inputs_.size(), "");
  post_processed_.clear();
  post_processed_of_.clear();
  for (size_t s = 0; s < sampling_.size(); ++s) {
    ActiveRequest& request = *candidates_[static_cast<size_t>(plan_.sequences[sampling_[s]].request_index)];
    if (!request.post_processing.wanted()) continue;
    post_processed_.push_back({&request.post_processing, request.requestId(), request.clientId(), request.tokens(),
                               sample_inputs_[s].logits, ""});
    post_processed_of_.push_back(s);
  }
  post_processors_.apply(post_processed_);
  for (size_t i = 0; i < post_processed_.size(); ++i) {
    sample_inputs_[post_processed_of_[i]].logits = post_processed_[i].logits;
    sample_errors_[post_processed_of_[i]] = std::move(post_processed_[i].error);
  }
}

void ExecutorCore::failRunning(const std::exception& error) noexcept {
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  try {
    const std::string message = std::string("Encountered an error in forwardAsync function: ") + error.what();
    log::error("{}", message);
    const Error told(no_memory ? ErrorCode::kExhausted : ErrorCode::kInternal, message);
    for (ActiveRequest* request : running_) decide(*request, told);
  } catch (const std::exception&) {
    for (ActiveRequest* request : running_) decide(*request, error);
  }
}

}  // namespace chorus
