// The executor's third part: responses to the clients, by callback or by ResponseQueue.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/request.h"
#include "runtime/response_queue.h"

namespace chorus {

// Used by the step thread alone, except for responses().
class Delivery {
 public:
  // Thread-safe.
  ResponseQueue& responses() { return responses_; }

  // Makes room for one response, so that the next add() cannot fail. If it throws, nothing has changed.
  void reserve();
  // Adds a response for the next deliver(). Precondition: reserve() was called since the last add().
  void add(const Request& request, executor::Response response) noexcept;
  // Passes the added responses on. If it throws std::bad_alloc, the rest follows in the next call.
  void deliver();
  // Whether deliver() has passed on all responses.
  bool empty() const { return outgoing_.empty() && calls_.empty(); }
  // Ends all waits for responses, because none will follow.
  void close() { responses_.close(); }

  // Number of requests whose last response was added since the last call.
  int32_t takeCompleted() noexcept { return std::exchange(completed_, 0); }

 private:
  struct Call {
    std::shared_ptr<const Request::Callback> callback;
    executor::Response response;
  };
  bool call(const Call& call) noexcept;

  ResponseQueue responses_;
  std::vector<executor::Response> outgoing_;
  std::vector<Call> calls_;
  int refused_calls_ = 0;  // consecutive std::bad_alloc from calling back one response
  int32_t completed_ = 0;
};

}  // namespace chorus
