#include "engine/rank_threads.h"

#include <utility>

namespace chorus {

RankThreads::RankThreads(int32_t ranks, std::vector<LocalGroup*> groups, std::function<void(int32_t rank)> begin)
    : groups_(std::move(groups)), begin_thread_(std::move(begin)) {
  for (int32_t rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { work(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(int32_t first, int32_t count, Call call) {
  if (threads_.empty()) return call(first);
  const std::lock_guard one_run(one_run_);
  {
    const std::lock_guard lock(mutex_);
    call_ = &call;
    first_ = first;
    count_ = count;
    running_ = count - 1;
    ++runs_;
  }
  begin_.notify_all();
  execute(first, call);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return running_ == 0; });
  if (error_ == nullptr) return;
  for (LocalGroup* group : groups_) group->reset();
  std::rethrow_exception(std::exchange(error_, nullptr));
}

// Drops the errors of ranks that fail because another rank failed before.
void RankThreads::execute(int32_t rank, Call call) {
  try {
    call(rank);
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (error_ == nullptr) error_ = std::current_exception();
    }
    for (LocalGroup* group : groups_) group->abort();
  }
}

void RankThreads::work(int32_t rank) {
  if (begin_thread_) begin_thread_(rank);
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;;) {
    begin_.wait(lock, [&] { return stop_ || runs_ != done; });
    if (stop_) return;
    done = runs_;
    if (rank <= first_ || rank >= first_ + count_) continue;  // rank first_ runs on the caller's thread
    const Call call = *call_;
    lock.unlock();
    execute(rank, call);
    lock.lock();
    if (--running_ == 0) end_.notify_one();
  }
}

}  // namespace chorus
