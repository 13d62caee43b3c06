// All requests that have not ended, and the verdicts on those that must end early.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "runtime/request.h"

namespace chorus {

// Used by the step thread alone.
class RequestTable {
 public:
  using Requests = std::map<executor::IdType, std::unique_ptr<Request>>;

  // Adds a request that another thread made. Allocates nothing.
  Request& add(Requests::node_type node) noexcept { return *requests_.insert(std::move(node)).position->second; }
  void remove(const Request& request) noexcept { requests_.erase(executor::IdType{request.id}); }
  const Requests& all() const { return requests_; }
  // Null if there is none.
  Request* find(executor::IdType id) const {
    const auto found = requests_.find(id);
    return found != requests_.end() ? found->second.get() : nullptr;
  }

  // Sets the request's verdict unless it has one. ExecutorCore then answers and removes the request.
  void decide(Request& request, executor::FinishReason reason) noexcept {
    if (request.verdict.kind != Verdict::Kind::kNone) return;
    request.verdict = {Verdict::Kind::kFinished, reason, nullptr};
    decided_ = true;
  }
  void decide(Request& request, const std::exception& error) noexcept {
    if (request.verdict.kind != Verdict::Kind::kNone) return;
    request.verdict = {Verdict::Kind::kFailed, executor::FinishReason::kNOT_FINISHED, nullptr};
    decided_ = true;
    try {
      if (const auto* of_adapter = dynamic_cast<const AdapterError*>(&error)) {
        request.verdict.error = std::make_shared<const AdapterError>(*of_adapter);
      } else {
        request.verdict.error = std::make_shared<const Error>(errorCodeOf(error), error.what());
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch)
      // Request::errorResponse() answers a null error as std::bad_alloc.
    }
  }
  // Calls visit(request) for each request with a verdict; it may remove the request. If it throws, the rest follows in
  // the next call.
  template <typename Visit>
  void forEachDecided(Visit visit) {
    if (!decided_) return;
    for (auto next = requests_.begin(); next != requests_.end();) {
      Request& request = *(next++)->second;
      if (request.verdict.kind != Verdict::Kind::kNone) visit(request);
    }
    decided_ = false;
  }

 private:
  Requests requests_;
  bool decided_ = false;  // a request has a verdict
};

}  // namespace chorus
