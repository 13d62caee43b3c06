#include "runtime/executor_core.h"

#include <limits>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace chorus {

using executor::FinishReason;

ExecutorCore::ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load)
    : options_(options),
      post_processors_(options.logits_post_processors),
      runner_(std::move(runner)),
      admission_(options_, post_processors_, requests_, std::move(load),
                 [this](std::span<const WeightedAdapter> terms) { return runner_->composeAdapters(terms); }),
      steps_(options_, post_processors_, requests_, admission_, *runner_),
      statistics_(options_) {
  publish();
  thread_ = std::thread([this] { loop(); });
}

ExecutorCore::~ExecutorCore() { shutdown(); }

void ExecutorCore::shutdown() {
  admission_.shutdown();
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void ExecutorCore::loop() {
  runner_->placeStepThread();
  while (admission_.waitForWork(idle_)) {
    try {
      round();
      failed_rounds_ = 0;
    } catch (...) {
      roundFailed(std::current_exception());
    }
  }
  admission_.takeRest();
  // Retries while memory is short, but not for ever: nobody must wait without end for an answer.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    try {
      for (const auto& [_, request] : requests_.all()) requests_.decide(*request, FinishReason::kCANCELLED);
      ends_left_ = std::numeric_limits<int32_t>::max();
      endDecided();
      idle_ = true;
      publish();
      delivery_.deliver();
      if (requests_.all().empty() && delivery_.empty()) break;
    } catch (...) {
      roundFailed(std::current_exception());
    }
  }
  admission_.endHolds();
  while (!requests_.all().empty()) {
    Request& request = *requests_.all().begin()->second;
    while (!request.sequences().empty()) remove(*request.sequences().back());
    remove(request);
  }
  delivery_.close();
}

void ExecutorCore::round() {
  const auto begin = Clock::now();
  ends_left_ = options_.sequencesPerRound();
  admission_.takeInbox();
  admission_.takeLoadedAdapters();
  admission_.endOverdue();
  endDecided();
  admission_.claimAdapters();
  endDecided();
  const bool planned = steps_.plan();
  if (planned) step(begin);
  endDecided();
  idle_ = !planned && !admission_.claimsPending() && !requests_.anyDecided();
  publish();
  delivery_.deliver();
}

// A failed round loses nothing: the next one does what it left undone.
void ExecutorCore::roundFailed(const std::exception_ptr& error) noexcept {
  idle_ = false;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      log::error("a round of the executor failed: {}", known.what());
      // A cause other than a lack of memory would repeat itself, so after 10 failures in a row all requests fail.
      if (++failed_rounds_ < 10) return;
      failed_rounds_ = 0;
      for (const auto& [_, request] : requests_.all()) requests_.decide(*request, known);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch)
    // Logging is best effort: it may itself run out of memory.
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ExecutorCore::step(Clock::time_point round_begin) {
  const auto begin = Clock::now();
  auto sampled = begin;
  try {
    steps_.begin(begin);
    publish();
    steps_.run();
    sampled = Clock::now();
    for (Sequence* sequence : steps_.changes().forked) admission_.enterFork(*sequence);
    for (Sequence* sequence : steps_.changes().dropped) drop(*sequence);
    for (Sequence* sequence : steps_.changes().advanced) answer(*sequence);
  } catch (const std::exception& error) {
    steps_.failRunning(error);
  }
  try {
    endDecided();  // before the statistics, so that requests that failed in this step count as completed in it
  } catch (const std::exception& error) {  // out of memory: the round ends them
    log::debug("requests that failed end later: {}", error.what());
  }
  statistics_.countStep(steps_.stepStats(), steps_.changes().advanced.size(),
                        {round_begin, steps_.networkBegan(), steps_.networkEnded(), sampled, Clock::now()});
  executor::IterationStats stats = steps_.stepStats();
  stats.numCompletedRequests = delivery_.takeCompleted();
  statistics_.endStep(std::move(stats), begin, steps_.running(), admission_.queue());
}

void ExecutorCore::publish() {
  statistics_.publish(steps_.countBlocks(), admission_.adapters().stats());
  statistics_.publishBatch(steps_.running(), admission_.queue(), steps_.latestStep(), steps_.pauses());
  statistics_.publishAdapters(admission_.adapters(), admission_.queue(), idle_);
}

void ExecutorCore::endDecided() {
  requests_.lineUpDecided([this](Request& request) {
    for (const auto& sequence : request.sequences()) {
      if (!sequence->runs()) admission_.withdraw(*sequence);
    }
  });
  if (!requests_.anyDecided()) return;
  // Those that run would take part in the next step, so they do not wait for a turn. They are at most a batch.
  const auto running = [this] { return steps_.running(); };
  for (size_t i = 0; i < running().size();) {
    Sequence& sequence = *running()[i];
    if (sequence.request.verdict.kind != Verdict::Kind::kNone)
      endDecided(sequence);
    else
      ++i;
  }
  while (ends_left_ > 0) {
    Request* const next = requests_.nextToEnd();
    if (next == nullptr) break;
    next->sequences().empty() ? endDecided(*next) : endDecided(*next->sequences().front());
  }
}

void ExecutorCore::endDecided(Sequence& sequence) {
  Request& request = sequence.request;
  if (request.verdict.kind == Verdict::Kind::kFinished) respond(sequence, request.verdict.reason);
  remove(sequence);
  --ends_left_;
  if (request.sequences().empty()) endDecided(request);
}

// The error is the only answer to a failed request.
void ExecutorCore::endDecided(Request& request) {
  if (request.verdict.kind == Verdict::Kind::kFailed) {
    delivery_.reserve();
    delivery_.add(request, request.errorResponse());
  }
  remove(request);
}

void ExecutorCore::answer(Sequence& sequence) {
  Request& request = sequence.request;
  const FinishReason reason = request.answerOf(sequence).finishReason();
  const bool finished = reason != FinishReason::kNOT_FINISHED;
  if (finished || request.streaming) respond(sequence, reason);
  if (!finished) return;
  remove(sequence);
  if (request.sequences().empty()) remove(request);
}

void ExecutorCore::drop(Sequence& sequence) {
  Request& request = sequence.request;
  const bool last = request.sequences().size() == 1;
  if (last) respond(sequence, FinishReason::kCANCELLED);
  remove(sequence);
  if (last) remove(request);
}

void ExecutorCore::respond(const Sequence& sequence, FinishReason reason) {
  delivery_.reserve();
  delivery_.add(sequence.request, sequence.request.response(sequence, reason));
}

void ExecutorCore::remove(Sequence& sequence) noexcept {
  if (sequence.runs()) statistics_.ended(sequence, steps_.latestStep());
  admission_.release(sequence);
  steps_.release(sequence);
  sequence.request.answerOf(sequence).release();
  sequence.request.strategy().end(sequence);
}

void ExecutorCore::remove(Request& request) noexcept {
  admission_.ended(request);
  requests_.remove(request);
}

}  // namespace chorus
