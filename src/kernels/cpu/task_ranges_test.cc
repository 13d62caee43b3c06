#include "kernels/cpu/task_ranges.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace chorus {
namespace {

TEST(TaskRangesTest, AQueueTakesItsOwnTasksInOrderAndThenTheEndOfAnother) {
  TaskRanges ranges(2);
  ranges.deal(20, 3);
  int64_t next = 0;
  while (next < 10) {
    const TaskRanges::Range range = ranges.take(0);
    ASSERT_EQ(range.begin, next);
    ASSERT_LE(range.end - range.begin, 3);
    next = range.end;
  }
  EXPECT_EQ(next, 10);
  const TaskRanges::Range stolen = ranges.take(0);
  EXPECT_EQ(stolen.begin, 17);
  EXPECT_EQ(stolen.end, 20);
  EXPECT_EQ(ranges.take(1).begin, 10);
}

TEST(TaskRangesTest, EveryTaskIsTakenOnce) {
  for (const int queues : {1, 2, 3, 8}) {
    TaskRanges ranges(queues);
    for (const int64_t tasks : {0, 1, 2, 7, 100, 5000}) {
      ranges.deal(tasks, 16);
      std::vector<std::vector<TaskRanges::Range>> taken(static_cast<size_t>(queues));
      std::vector<std::thread> threads;
      for (int queue = 0; queue < queues; ++queue) {
        threads.emplace_back([&, queue] {
          while (const TaskRanges::Range range = ranges.take(queue)) taken[static_cast<size_t>(queue)].push_back(range);
        });
      }
      for (std::thread& thread : threads) thread.join();
      std::vector<int> times(static_cast<size_t>(tasks));
      for (const auto& of_queue : taken) {
        for (const TaskRanges::Range range : of_queue) {
          for (int64_t task = range.begin; task < range.end; ++task) ++times[static_cast<size_t>(task)];
        }
      }
      EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(tasks), 1)) << queues << " queues";
    }
  }
}

}  // namespace
}  // namespace chorus
