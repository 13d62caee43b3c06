// Responses on their way from the step thread to whoever awaits them.
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
  // As close(), and waits for those who wait to be gone.
  ~ResponseQueue();
  ResponseQueue(const ResponseQueue&) = delete;
  ResponseQueue& operator=(const ResponseQueue&) = delete;

  // Announces a request whose responses will be awaited. Ids ascend.
  void open(executor::IdType id);
  // Takes an announcement back.
  void forget(executor::IdType id) noexcept;
  // Adds responses; those of ids that were never opened are dropped. Empties the vector; when memory is missing, of
  // those that it could add.
  void push(std::vector<executor::Response>& responses);
  // No response will come any more: those who wait return.
  void close();

  // Block until there is a response (of any request, of that one), the time has passed, or close(). Empty
  // then.
  std::vector<executor::Response> awaitAny(const Timeout& timeout);
  // An id whose last response was taken, or that was never opened, gives one error response at once.
  std::vector<executor::Response> awaitOne(executor::IdType id, const Timeout& timeout);
  // One list an id, in order; the timeout is for all together.
  std::vector<std::vector<executor::Response>> awaitEach(const std::vector<executor::IdType>& ids,
                                                         const Timeout& timeout);
  executor::SizeType32 numReady(const std::optional<executor::IdType>& id) const;
  // Threads in awaitAny, awaitOne and awaitEach, whether they have to wait or not.
  int numWaiting() const;

 private:
  struct Open {
    std::vector<executor::Response> ready;
    bool complete = false;  // the last response is in ready
  };
  // A call in hand that may wait: the queue outlives it.
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
