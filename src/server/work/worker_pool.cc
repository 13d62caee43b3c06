#include "server/work/worker_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "server/work/slow_clients.h"

namespace chorus::server {
namespace {

// Measures the time that the calling thread takes, of the processor and in all.
class TaskTime {
 public:
  bool isShort() const {
    return std::chrono::steady_clock::now() - begin_ <= WorkerOptions::kShortTime &&
           processor() - worked_ <= WorkerOptions::kShortWork;
  }

 private:
  static std::chrono::nanoseconds processor() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds worked_ = processor();
};

}  // namespace

// Shared with the threads, which may outlive the pool.
struct WorkerPool::State {
  explicit State(const WorkerOptions& options)
      : queue(options.limits),
        clients(static_cast<size_t>(options.threads) + 1),
        client_limit(options.reserve ? options.threads : options.threads + 1) {
    if (options.reserve) slow.emplace();
  }

  // A thread of the pool, and the tasks that it takes.
  struct Thread {
    size_t index = 0;
    size_t max_bytes = SIZE_MAX;
    bool is_reserve = false;  // it takes no tasks of slow clients
  };
  void work(const Thread& thread);
  // During finish() every thread takes any task.
  FairQueue::Choice choiceOf(const Thread& thread) const {
    if (finishing) return {};
    FairQueue::Choice choice{.max_bytes = thread.max_bytes, .running = clients, .client_limit = client_limit};
    if (thread.is_reserve) choice.left_out = &*slow;
    return choice;
  }

  std::mutex mutex;
  std::condition_variable changed;
  FairQueue queue;
  std::vector<std::optional<uint64_t>> clients;  // whose task each thread is running
  int64_t client_limit;                          // threads that run tasks of one client at most
  std::optional<SlowClients> slow;               // if there is a reserve
  std::unordered_map<uint64_t, Task> tasks;
  uint64_t last_id = 0;
  size_t running = 0;  // threads that have not ended
  bool finishing = false, finished = false;
  std::vector<std::thread> threads;
};

void WorkerPool::State::work(const Thread& thread) {
  std::unique_lock lock(mutex);
  while (true) {
    std::optional<FairQueue::Taken> taken;
    changed.wait(lock, [&] {
      taken = queue.take(choiceOf(thread));
      return taken || finishing;
    });
    if (!taken) break;
    clients[thread.index] = taken->client;
    const auto at = tasks.find(taken->id);
    Task task = std::move(at->second);
    tasks.erase(at);
    lock.unlock();
    const TaskTime time;
    try {
      task();
    } catch (const std::exception& e) {
      log::error("a task failed: {}", e.what());
    } catch (...) {
      log::error("a task failed");
    }
    task = nullptr;
    const bool is_short = time.isShort();
    lock.lock();
    if (slow) slow->ended(taken->client, is_short);
    clients[thread.index].reset();
    if (client_limit < std::ssize(clients) && queue.size() > 0) changed.notify_all();  // it may have been at its limit
  }
  --running;
  changed.notify_all();
}

WorkerPool::WorkerPool(const WorkerOptions& options) : state_(std::make_shared<State>(options)) {
  for (int i = 0; i < options.threads + (options.reserve ? 1 : 0); ++i) {
    const bool small_only = options.small_bytes > 0 && ((i == 0 && options.threads > 1) || i == options.threads);
    const State::Thread thread{.index = static_cast<size_t>(i),
                               .max_bytes = small_only ? options.small_bytes : SIZE_MAX,
                               .is_reserve = i == options.threads};
    {
      std::lock_guard lock(state_->mutex);
      ++state_->running;
    }
    state_->threads.emplace_back([state = state_, niceness = options.niceness, thread] {
      const auto self = static_cast<id_t>(syscall(SYS_gettid));
      if (niceness > 0) setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + niceness);
      state->work(thread);
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
