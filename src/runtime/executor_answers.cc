// Responses of ExecutorCore, and the end of requests.
#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/executor_core.h"

namespace chorus {
namespace {

using executor::FinishReason;
using executor::IdType;
using executor::Response;

void logFailedCallback(const Response& response, const char* why) noexcept {
  try {
    log::error("a response callback of request {} threw: {}", response.getRequestId(), why);
  } catch (...) {
    // Logging is best effort: it may itself run out of memory.
  }
}

}  // namespace

void ExecutorCore::decide(ActiveRequest& request, FinishReason reason) noexcept {
  if (request.verdict.kind != Verdict::Kind::kNone) return;
  request.verdict = {Verdict::Kind::kFinished, reason, nullptr};
  decided_ = true;
}

void ExecutorCore::decide(ActiveRequest& request, const std::exception& error) noexcept {
  if (request.verdict.kind != Verdict::Kind::kNone) return;
  request.verdict = {Verdict::Kind::kFailed, FinishReason::kNOT_FINISHED, nullptr};
  decided_ = true;
  try {
    request.verdict.error = std::make_shared<const Error>(errorCodeOf(error), error.what());
  } catch (...) {
    // responseTo() answers a null error as std::bad_alloc.
  }
}

Response ExecutorCore::responseTo(ActiveRequest& request) const {
  const Verdict& verdict = request.verdict;
  if (verdict.kind == Verdict::Kind::kFinished) return request.response(verdict.reason);
  if (verdict.error == nullptr) return request.errorResponse(ErrorCode::kExhausted, "std::bad_alloc");
  return request.errorResponse(verdict.error->code(), verdict.error->what());
}

void ExecutorCore::endDecided() {
  // respond() sets decided_ again if a sequence fails; the next pass then ends its siblings.
  while (std::exchange(decided_, false)) {
    try {
      for (auto next = requests_.begin(); next != requests_.end();) {
        ActiveRequest& request = *(next++)->second;
        const bool sibling_failed = request.group != nullptr && request.group->failed;
        if (request.verdict.kind == Verdict::Kind::kNone && !sibling_failed) continue;
        if (!sibling_failed) respond(request, responseTo(request));
        forget(request);
      }
    } catch (...) {
      decided_ = true;
      throw;
    }
  }
}

void ExecutorCore::respond(ActiveRequest& request, Response response) {
  if (request.group != nullptr && request.group->failed) return;
  const bool failed = response.hasError();
  const bool final = failed || response.getResult().isFinal;
  const bool last_of_sequence = !failed && response.getResult().isSequenceFinal;
  if (request.callback != nullptr)
    calls_.emplace_back(request.callback, std::move(response));
  else
    outgoing_.push_back(std::move(response));
  if (last_of_sequence && request.group != nullptr) --request.group->unfinished;
  if (failed && request.group != nullptr) request.group->failed = decided_ = true;
  if (final) ++completed_;
}

void ExecutorCore::deliver() {
  responses_.push(outgoing_);
  size_t called = 0;
  while (called < calls_.size() && call(calls_[called].first, calls_[called].second)) ++called;
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(called));
  if (!calls_.empty()) throw std::bad_alloc();
}

// Returns false if the callback threw std::bad_alloc and must be called again.
bool ExecutorCore::call(const Callback& callback, const Response& response) noexcept {
  try {
    callback(response);
  } catch (const std::bad_alloc&) {
    if (++refused_calls_ < 100) return false;
  } catch (const std::exception& error) {
    logFailedCallback(response, error.what());
  } catch (...) {
    logFailedCallback(response, "an object that is not a std::exception");
  }
  refused_calls_ = 0;
  return true;
}

void ExecutorCore::releaseResources(ActiveRequest& request) noexcept {
  if (request.slot >= 0) {
    blocks_.release(request.slot);
    free_slots_.push_back(request.slot);
    request.slot = -1;
  }
  leaveCacheNamespace(request);
  if (request.adapter.number != 0) {
    adapters_->release(request.adapter);
    claims_changed_ = true;
  }
}

void ExecutorCore::leftQueue(ActiveRequest& request) noexcept {
  if (std::exchange(request.begun, true)) return;
  const std::lock_guard lock(mutex_);
  queued_.leave(request.clientId(), 1);
}

void ExecutorCore::end(ActiveRequest& request, Response response) {
  respond(request, std::move(response));
  forget(request);
}

void ExecutorCore::forget(ActiveRequest& request) noexcept {
  if (request.deadline) --with_deadline_;
  leftQueue(request);
  const bool runs = request.slot >= 0;
  if (runs && options_.request_stats_max > 0) {
    try {
      ended_.push_back(request.stats(iterations_ - 1));
      ended_.back().stage = executor::RequestStage::kGENERATION_COMPLETE;
    } catch (const std::bad_alloc&) {
      // The statistics lack this request.
    }
  }
  if (request.queued) waiting_.remove(request, runs);
  if (runs) std::erase(running_, &request);
  releaseResources(request);
  requests_.erase(IdType{request.id});
  queueMoved();
}

}  // namespace chorus
