#include "base/thread_pool.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnceForAnyThreadCount) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int round = 0; round < 300; ++round) {
      const int64_t tasks = round % 17;
      std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks));
      pool.run(tasks, [&](int64_t task, int thread) {
        EXPECT_LT(thread, threads);
        seen[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, EveryWorkerBeginsOnce) {
  std::vector<std::atomic<int>> begun(4);
  {
    ThreadPool pool(4, 0, [&](int thread) { begun[static_cast<size_t>(thread)].fetch_add(1); });
    pool.run(10, [](int64_t, int) {});
  }
  EXPECT_EQ(begun[0].load(), 0) << "the caller's thread";
  for (size_t thread = 1; thread < 4; ++thread) EXPECT_EQ(begun[thread].load(), 1);
}

TEST(ThreadPoolTest, WakesSleepingWorkers) {
  ThreadPool pool(3, 0);
  std::atomic<int> sum{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.run(100, [&](int64_t, int) { sum.fetch_add(1); });
  }
  EXPECT_EQ(sum.load(), 500);
}

}  // namespace
}  // namespace chorus
