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
  // If there are two or more threads, one of them takes only tasks of at most this size; 0: every thread takes any
  // task.
  size_t small_bytes = 0;
  // Adds a thread that takes only tasks of at most small_bytes (0: any), of clients whose latest task was short,
  // and limits each client to all threads but one: however many slow tasks some clients have, a small task of another
  // client does not wait for them.
  bool reserve = false;
  int niceness = 0;  // added to that of the process

  // Most processor time, and most time from begin to end, of a task that counts as short.
  static constexpr std::chrono::milliseconds kShortWork{5}, kShortTime{100};
};

// Runs tasks in the order of a FairQueue. An exception of a task is logged, and the thread continues.
class WorkerPool {
 public:
  using Task = std::function<void()>;
  struct Posted {
    FairQueue::Answer answer = FairQueue::Answer::kAdded;
    uint64_t id = 0;
  };

  explicit WorkerPool(int threads) : WorkerPool(WorkerOptions{.threads = threads}) {}
  explicit WorkerPool(const WorkerOptions& options);
  ~WorkerPool();  // calls finish() without a limit
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Any thread. After finish() tasks are dropped; the answer is kAdded then.
  Posted post(uint64_t client, size_t bytes, Task task);
  // Any thread. Drops a task that has not begun; false if it has begun or ended.
  bool drop(uint64_t id);
  // Runs all queued tasks, and those that they post, and ends the threads. Idempotent; one caller at a time. Returns
  // false if some threads have not ended within `limit`: they continue detached, and everything that their tasks use
  // must stay alive.
  bool finish(std::chrono::milliseconds limit = std::chrono::milliseconds::max());

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chorus::server
