// Threads for work that I/O threads and the step thread must not do: JSON, templates, tokenizing, detokenizing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/work/fair_queue.h"

namespace chorus::server {

struct WorkerOptions {
  int threads = 1;
  FairQueue::Limits limits;
  // With two threads or more, one of them takes only tasks of at most so many bytes; 0: none does.
  size_t small_bytes = 0;
  int niceness = 0;  // added to that of the process
};

// Tasks run in the order of a FairQueue. One that throws is logged; the thread goes on.
class WorkerPool {
 public:
  using Task = std::function<void()>;
  struct Posted {
    FairQueue::Answer answer = FairQueue::Answer::kAdded;
    uint64_t id = 0;
  };

  explicit WorkerPool(int threads) : WorkerPool(WorkerOptions{.threads = threads}) {}
  explicit WorkerPool(const WorkerOptions& options);
  ~WorkerPool();  // as finish() without a limit
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Any thread. After finish() tasks are dropped.
  Posted post(uint64_t client, size_t bytes, Task task);
  // Any thread: drops a task that has not begun; false when it has, or is over.
  bool drop(uint64_t id);
  // Runs what is queued, also what those tasks post, and ends the threads. Idempotent; one caller at a time. False when
  // some have not ended within the limit: they go on without the pool, and everything that their tasks use must stay.
  bool finish(std::chrono::milliseconds limit = std::chrono::milliseconds::max());

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chorus::server
