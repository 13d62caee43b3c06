#include "server/work/worker_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"

namespace chorus::server {

// Shared with the threads, which may outlive the pool.
struct WorkerPool::State {
  explicit State(const WorkerOptions& options) : queue(options.limits) {}

  void work(size_t max_bytes);
  // Whether a thread should wake: there is a task for it, or finish() was called.
  bool ready(size_t max_bytes) const { return finishing || queue.has(max_bytes); }

  std::mutex mutex;
  std::condition_variable changed;
  FairQueue queue;
  std::unordered_map<uint64_t, Task> tasks;
  uint64_t last_id = 0;
  size_t running = 0;  // threads that have not ended
  bool finishing = false, finished = false;
  std::vector<std::thread> threads;
};

void WorkerPool::State::work(size_t max_bytes) {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ready(max_bytes); });
    // During finish() the thread for small tasks takes any task.
    const auto id = queue.take(finishing ? SIZE_MAX : max_bytes);
    if (!id) break;
    const auto at = tasks.find(*id);
    Task task = std::move(at->second);
    tasks.erase(at);
    lock.unlock();
    try {
      task();
    } catch (const std::exception& e) {
      log::error("a task failed: {}", e.what());
    } catch (...) {
      log::error("a task failed");
    }
    task = nullptr;
    lock.lock();
  }
  --running;
  changed.notify_all();
}

WorkerPool::WorkerPool(const WorkerOptions& options) : state_(std::make_shared<State>(options)) {
  for (int i = 0; i < options.threads; ++i) {
    const bool small_only = i == 0 && options.threads > 1 && options.small_bytes > 0;
    {
      std::lock_guard lock(state_->mutex);
      ++state_->running;
    }
    state_->threads.emplace_back(
        [state = state_, niceness = options.niceness, max_bytes = small_only ? options.small_bytes : SIZE_MAX] {
          const auto self = static_cast<id_t>(syscall(SYS_gettid));
          if (niceness > 0) setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + niceness);
          state->work(max_bytes);
        });
  }
}

WorkerPool::~WorkerPool() { finish(); }

WorkerPool::Posted WorkerPool::post(uint64_t client, size_t bytes, Task task) {
  std::lock_guard lock(state_->mutex);
  if (state_->finished) return {};
  const uint64_t id = ++state_->last_id;
  const auto [at, added] = state_->tasks.emplace(id, nullptr);
  FairQueue::Answer answer = FairQueue::Answer::kFull;
  try {
    answer = state_->queue.add(id, client, bytes);
  } catch (...) {
    state_->tasks.erase(at);
    throw;
  }
  if (answer != FairQueue::Answer::kAdded) {
    state_->tasks.erase(at);
    return {answer, 0};
  }
  at->second = std::move(task);
  // notify_one() could wake the thread that takes small tasks only.
  state_->changed.notify_all();
  return {answer, id};
}

bool WorkerPool::drop(uint64_t id) {
  Task dropped;
  std::lock_guard lock(state_->mutex);
  if (!state_->queue.remove(id)) return false;
  const auto at = state_->tasks.find(id);
  dropped.swap(at->second);
  state_->tasks.erase(at);
  return true;
}

bool WorkerPool::finish(std::chrono::milliseconds limit) {
  std::unordered_map<uint64_t, Task> dropped;
  std::unique_lock lock(state_->mutex);
  state_->finishing = true;
  state_->changed.notify_all();
  const auto ended = [this] { return state_->running == 0; };
  if (limit == std::chrono::milliseconds::max()) {
    state_->changed.wait(lock, ended);
  } else {
    state_->changed.wait_for(lock, limit, ended);
  }
  const bool all = ended();
  state_->finished = true;
  dropped.swap(state_->tasks);
  state_->queue = FairQueue();
  std::vector<std::thread> threads;
  threads.swap(state_->threads);
  lock.unlock();
  for (auto& thread : threads) {
    if (all) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  return all;
}

}  // namespace chorus::server
