// Passes responses from the step thread to the threads that await them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "chorus/response.h"
#include "runtime/deadline.h"

namespace chorus {

// Thread-safe.
class ResponseQueue {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  ResponseQueue() = default;
  // Calls close(), then waits until no thread is inside an await call.
  ~ResponseQueue();
  ResponseQueue(const ResponseQueue&) = delete;
  ResponseQueue& operator=(const ResponseQueue&) = delete;

  // Announces a request whose responses will be awaited. Ids ascend.
  void open(executor::IdType id);
  // Undoes open().
  void forget(executor::IdType id) noexcept;
  // Moves the responses into the queue and empties the vector. Responses of ids that are not open are dropped. If it
  // throws std::bad_alloc, the responses that were not added remain in the vector.
  void push(std::vector<executor::Response>& responses);
  // Ends all waits, because no response will come any more.
  void close();

  // awaitAny() and awaitOne() block until a response is ready (of any request, or of `id`), the timeout has passed, or
  // close(). They return all such responses that are ready, possibly none.
  std::vector<executor::Response> awaitAny(const Timeout& timeout);
  // Returns one error response at once if `id` was never opened or its last response was taken.
  std::vector<executor::Response> awaitOne(executor::IdType id, const Timeout& timeout);
  // Returns one list of responses per id, in the order of ids. The timeout is for the whole call.
  std::vector<std::vector<executor::Response>> awaitEach(const std::vector<executor::IdType>& ids,
                                                         const Timeout& timeout);
  executor::SizeType32 numReady(const std::optional<executor::IdType>& id) const;
  // Number of threads inside awaitAny, awaitOne and awaitEach, blocked or not.
  int numWaiting() const;

 private:
  struct Open {
    std::vector<executor::Response> ready;
    bool complete = false;  // the last response is in ready
  };
  // Counts a call that may block, so that the destructor can wait for its end.
  class Visit {
   public:
    explicit Visit(ResponseQueue& queue);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    ResponseQueue& queue_;
  };
  void add(executor::Response& response);
  std::vector<executor::Response> take(std::map<executor::IdType, Open>::iterator open);
  std::vector<executor::Response> awaitUntil(executor::IdType id, const Deadline& deadline);
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Ready ready);

  mutable std::mutex mutex_;
  std::condition_variable arrived_, left_;
  int visits_ = 0;
  std::map<executor::IdType, Open> open_;
  std::set<executor::IdType> with_responses_;
  bool closed_ = false;
};

}  // namespace chorus
