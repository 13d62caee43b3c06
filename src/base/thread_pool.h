// Fork-join parallelism over a fixed number of threads. The calling thread is thread 0 and runs tasks too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace chorus {

class ThreadPool {
 public:
  // threads >= 1, including the caller. Workers wait for the next job by spinning for at most spin_us microseconds and
  // then sleeping; with more threads than available cores they do not spin. begin(thread) is called on each worker
  // before its first task; it may be empty.
  explicit ThreadPool(int threads, int spin_us = 50, std::function<void(int thread)> begin = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) once for every task in [0, tasks), in any order on any thread, and returns when all are
  // done. Which thread runs a task must not change its result. fn must not throw. One caller at a time.
  template <typename F>
  void run(int64_t tasks, F&& fn) {
    if (tasks <= 0) return;
    if (workers_.empty() || tasks == 1) {
      for (int64_t i = 0; i < tasks; ++i) fn(i, 0);
      return;
    }
    auto trampoline = [](void* context, int64_t task, int thread) {
      (*static_cast<std::remove_reference_t<F>*>(context))(task, thread);
    };
    runErased(tasks, trampoline, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Job = void (*)(void* context, int64_t task, int thread);
  void runErased(int64_t tasks, Job job, void* context);
  void workerLoop(int thread);
  void drain(int thread);

  // state_ packs three fields: the job's generation (bits from kGenerationShift up), kOpen (set while workers may join
  // the job), and the number of workers inside the job (lower bits). A worker that wakes after the caller has drained
  // and closed the job does not join it, so a worker whose core runs another process never delays a job.
  static constexpr int kGenerationShift = 32;
  static constexpr uint64_t kOpen = uint64_t{1} << 31;

  int spin_us_;
  std::function<void(int thread)> begin_;
  std::vector<std::thread> workers_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace chorus
