#include "base/thread_pool.h"

#include <chrono>
#include <utility>

#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chorus {
namespace {

inline void pauseCpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
}  // namespace

ThreadPool::ThreadPool(int threads, int spin_us, std::function<void(int thread)> begin)
    : spin_us_(threads > availableCores() ? 0 : spin_us), begin_(std::move(begin)) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { workerLoop(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    state_.fetch_add(uint64_t{1} << kGenerationShift);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::drain(int thread) {
  for (;;) {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    job_(context_, task, thread);
  }
}

void ThreadPool::runErased(int64_t tasks, Job job, void* context) {
  job_ = job;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (state_.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
  state_.store(generation << kGenerationShift | kOpen, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  drain(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 0; (state_.load(std::memory_order_acquire) & (kOpen - 1)) != 0; ++spins) {
    if (spin_us_ == 0 || spins > 2000) {
      std::this_thread::yield();
    } else {
      pauseCpu();
    }
  }
}

void ThreadPool::workerLoop(int thread) {
  if (begin_) begin_(thread);
  uint64_t seen = 0;  // generation of the last job that this worker noticed
  const auto isNew = [&](uint64_t state) { return state >> kGenerationShift != seen; };
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
    while (!isNew(state_.load(std::memory_order_acquire))) {
      if (spin_us_ > 0) {
        for (int i = 0; i < 64 && !isNew(state_.load(std::memory_order_acquire)); ++i) pauseCpu();
        if (std::chrono::steady_clock::now() < deadline) continue;
      }
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return isNew(state_.load(std::memory_order_seq_cst)); });
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    uint64_t state = state_.load(std::memory_order_acquire);
    seen = state >> kGenerationShift;
    if (stop_.load()) return;
    bool joined = false;
    while (!joined && (state & kOpen) != 0 && !isNew(state)) {
      joined = state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    if (!joined) continue;
    drain(thread);
    state_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace chorus
