// Threads for what must not run on I/O or step threads: tokenizing, templates, detokenizing, JSON.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace chorus::server {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();  // as finish()
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Any thread. Tasks start in order and must not throw. After finish() they are dropped.
  void post(std::function<void()> task);
  // Runs what is queued, also what those tasks post, and joins. Idempotent; one caller at a time.
  void finish();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool finishing_ = false;
  bool finished_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace chorus::server
