// The step of ExecutorCore: plan, build, run, sample, respond.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "runtime/executor_core.h"

namespace chorus {

using executor::FinishReason;

void ExecutorCore::plan() {
  candidates_.clear();
  views_.clear();
  const auto add = [this](ActiveRequest& request) {
    candidates_.push_back(&request);
    views_.push_back(viewOf(request));
  };
  for (const auto& request : running_) add(*request);
  // No more can start than there are slots: the rest of the queue need not be looked at.
  size_t ready = 0;
  for (const auto& [_, request] : waiting_) {
    if (ready >= free_slots_.size() || candidates_.size() >= running_.size() + kLookahead) break;
    add(*request);
    if (request->adapter.ready()) ++ready;
  }
  countFreed();
  schedule(options_.scheduler, blocks_.freeBlocks(), views_, plan_);
  applyPlan();
}

void ExecutorCore::applyPlan() {
  const auto at = [this](int32_t i) { return candidates_[static_cast<size_t>(i)]; };
  for (const int32_t i : plan_.paused) pause(at(i));
  for (const int32_t i : plan_.bypassed) ++at(i)->times_bypassed;
  if (plan_.started.empty()) return;
  for (size_t i = running_.size(); i < static_cast<size_t>(plan_.started.back()); ++i) {
    if (!candidates_[i]->adapter.no_room) continue;
    candidates_[i]->times_bypassed +=
        static_cast<int32_t>(std::count_if(plan_.started.begin(), plan_.started.end(), [&](int32_t started) {
          return static_cast<size_t>(started) > i && at(started)->adapter.used();
        }));
  }
  for (const int32_t i : plan_.started) {
    ActiveRequest* request = at(i);
    adapters_->ensure(request->adapter);
    start(*request);
    auto node = waiting_.extract(request->position);
    running_.push_back(std::move(node.mapped()));
    leftQueue(*request);
  }
}

void ExecutorCore::pause(ActiveRequest* request) {
  adapters_->leave(request->adapter);
  blocks_.release(request->slot);
  free_slots_.push_back(request->slot);
  request->pause();
  const auto owner = std::find_if(running_.begin(), running_.end(), [&](const auto& r) { return r.get() == request; });
  waiting_.emplace(request->position, std::move(*owner));
  running_.erase(owner);
}

bool ExecutorCore::runStep() {
  if (plan_.sequences.empty()) return false;
  const auto begin = Clock::now();
  for (const auto& planned : plan_.sequences) candidates_[static_cast<size_t>(planned.request_index)]->stepped(begin);
  try {
    buildSequences();
    beginStats();
    const StepInput& input = builder_.build(sequences_);
    const auto logits = runner_->run(input);
    if (logits.size() != input.logits_rows.size() * static_cast<size_t>(options_.requests.vocab_size)) {
      fail(ErrorCode::kInternal, "the network gave {} logits for {} rows", logits.size(), input.logits_rows.size());
    }
    sampleAndRespond(logits);
  } catch (const std::exception& error) {
    failRunning(error.what());
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

void ExecutorCore::sampleAndRespond(std::span<const float> logits) {
  const int32_t vocab = options_.requests.vocab_size;
  const auto width = static_cast<size_t>(vocab);
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
    written(request);
    const RowRange range = builder_.logitsOf(i);
    const int32_t rows = range.end - range.begin;
    if (rows == 0) continue;
    const auto own = logits.subspan(static_cast<size_t>(range.begin) * width, static_cast<size_t>(rows) * width);
    request.scorePrompt(own, vocab, request.num_cached - rows, score_inputs_);
    scoring_.resize(score_inputs_.size(), i);
    request.keepLogits(own, vocab, request.num_cached - rows, planned.samples);
    if (!planned.samples) continue;
    sampling_.push_back(i);
    sample_inputs_.push_back(request.sampleInput(own.last(width)));
  }
  sample_outputs_.resize(sample_inputs_.size());
  sampler_.sample(sample_inputs_, sample_outputs_);
  score_outputs_.resize(score_inputs_.size());
  sampler_.sample(score_inputs_, score_outputs_);
  for (size_t s = 0; s < scoring_.size(); ++s) requestOf(scoring_[s]).keepPromptScore(score_outputs_[s]);

  const auto now = Clock::now();
  for (size_t s = 0; s < sampling_.size(); ++s) {
    ActiveRequest& request = requestOf(sampling_[s]);
    if (sample_outputs_[s].fault == SampleOutput::Fault::kNotFinite) {
      end(request, request.errorResponse(ErrorCode::kInternal,
                                         "The model's logits are not finite numbers: no token can be chosen"));
      continue;
    }
    if (sample_outputs_[s].fault == SampleOutput::Fault::kNothingLeft) {
      end(request, request.errorResponse(ErrorCode::kInvalidArgument,
                                         "badWords, noRepeatNgramSize, minTokens and embeddingBias ban every "
                                         "token: none can be chosen"));
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

void ExecutorCore::failRunning(const std::string& error) {
  const std::string message = "Encountered an error in forwardAsync function: " + error;
  log::error("{}", message);
  while (!running_.empty()) end(*running_.back(), running_.back()->errorResponse(ErrorCode::kInternal, message));
}

void ExecutorCore::beginStats() {
  executor::IterationStats& stats = step_stats_;
  stats = {};
  stats.iter = iterations_++;
  stats.numActiveRequests = static_cast<int32_t>(running_.size());
  stats.numQueuedRequests = static_cast<int32_t>(waiting_.size());
  std::vector<uint64_t>& adapters = step_adapters_;
  adapters.clear();
  for (const auto& planned : plan_.sequences) {
    (planned.context ? stats.numContextRequests : stats.numGenRequests) += 1;
    if (planned.context) stats.numCtxTokens += planned.num_tokens;
    for (const AdapterUse& use : views_[static_cast<size_t>(planned.request_index)].adapters)
      adapters.push_back(use.number);
  }
  std::sort(adapters.begin(), adapters.end());
  stats.numAdapters = static_cast<int32_t>(std::unique(adapters.begin(), adapters.end()) - adapters.begin());
  countBlocks();
  publishStats();
  stats.kvCacheStats = kv_stats_;
}

void ExecutorCore::publishStats() {
  const auto adapters = adapters_->stats();
  const std::lock_guard lock(stats_mutex_);
  published_kv_stats_ = kv_stats_;
  published_adapter_stats_ = adapters;
}

void ExecutorCore::endStats(Clock::time_point begin) {
  step_stats_.iterLatencyMS = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  const std::lock_guard lock(stats_mutex_);
  stats_.push_back(step_stats_);
  while (stats_.size() > static_cast<size_t>(std::max(0, options_.iter_stats_max))) stats_.pop_front();
}

}  // namespace chorus
