// Runs a function for the ranks of this process, each rank on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "comm/local.h"

namespace chorus {

// Thread-safe. With one rank, calls of run() run at the same time; with several, one after another.
class RankThreads {
 public:
  // groups: the groups of the communicators that the ranks use meanwhile. If a rank fails, they are aborted, so that
  // the other ranks do not wait for it. They must outlive this object. begin(rank) is called on each rank's thread
  // before its first call; it may be empty.
  RankThreads(int32_t ranks, std::vector<LocalGroup*> groups, std::function<void(int32_t rank)> begin = nullptr);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls `call` for the ranks [first, first + count), for rank `first` on the caller's thread, and returns when all
  // calls are done. Throws the exception of the first rank that failed; the next run can succeed.
  using Call = FunctionRef<void(int32_t rank)>;
  void run(int32_t first, int32_t count, Call call);

 private:
  void execute(int32_t rank, Call call);
  void work(int32_t rank);

  std::vector<LocalGroup*> groups_;
  std::function<void(int32_t rank)> begin_thread_;
  std::mutex one_run_;  // held during a run of several ranks

  // State of the current run.
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const Call* call_ = nullptr;
  int32_t first_ = 0, count_ = 0;
  uint64_t runs_ = 0;
  int32_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;          // of the first rank that failed
  std::vector<std::thread> threads_;  // of ranks 1 and up; declared last, because they use the members above
};

}  // namespace chorus
