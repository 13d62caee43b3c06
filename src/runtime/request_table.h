// All requests that have not ended, and the verdicts on those that must end early.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "runtime/client_lines.h"
#include "runtime/request.h"

namespace chorus {

// Used by the step thread alone.
class RequestTable {
 public:
  using Requests = std::map<executor::IdType, std::unique_ptr<Request>>;

  // Adds a request that another thread made. Allocates nothing.
  Request& add(Requests::node_type node) noexcept { return *requests_.insert(std::move(node)).position->second; }
  void remove(const Request& request) noexcept {
    if (request.verdict.in_line) ending_.remove(request.client_id, request.id);
    requests_.erase(executor::IdType{request.id});
  }
  const Requests& all() const { return requests_; }
  // Null if there is none.
  Request* find(executor::IdType id) const {
    const auto found = requests_.find(id);
    return found != requests_.end() ? found->second.get() : nullptr;
  }

  // Sets the request's verdict unless it has one. ExecutorCore then answers and removes the request.
  void decide(Request& request, executor::FinishReason reason) noexcept {
    if (request.verdict.kind != Verdict::Kind::kNone) return;
    request.verdict = {.kind = Verdict::Kind::kFinished, .reason = reason, .error = nullptr};
    decided_ = true;
  }
  void decide(Request& request, const std::exception& error) noexcept {
    if (request.verdict.kind != Verdict::Kind::kNone) return;
    request.verdict = {.kind = Verdict::Kind::kFailed, .error = nullptr};
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
  // Puts the requests that got a verdict into their clients' lines and calls visit(request) for each, once. If it
  // throws, the rest follows in the next call.
  template <typename Visit>
  void lineUpDecided(Visit visit) {
    if (!decided_) return;
    for (const auto& [id, request] : requests_) {
      Verdict& verdict = request->verdict;
      if (verdict.kind == Verdict::Kind::kNone || verdict.in_line) continue;
      ending_.add(request->client_id, id);
      verdict.in_line = true;
      visit(*request);
    }
    decided_ = false;
  }
  // The first in line of the client whose turn it is; null if no request is in line.
  Request* nextToEnd() noexcept { return ending_.empty() ? nullptr : find(ending_.nextTurn()); }
  // Whether a request has a verdict.
  bool anyDecided() const { return decided_ || !ending_.empty(); }

 private:
  Requests requests_;
  bool decided_ = false;                  // a request has a verdict but is not in ending_ yet
  ClientLines<executor::IdType> ending_;  // ids of requests with a verdict that have not ended
};

}  // namespace chorus
