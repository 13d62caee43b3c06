#include "kernels/linear/line_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace chorus {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

// The lines of the runs, as offsets in `memory`.
std::vector<int64_t> linesOf(const LineRuns& runs, const std::vector<std::byte>& memory) {
  std::vector<int64_t> lines;
  for (const LineRun& run : runs.runs()) {
    for (int64_t i = 0; i < run.lines; ++i) lines.push_back(run.at - memory.data() + i * 64);
  }
  return lines;
}

TEST(LineRuns, SharesAreEqualAndHaveAllLinesInTheirOrder) {
  const std::vector<std::byte> memory(kBytes);
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    LineRuns runs, dealt;
    const auto count = static_cast<int>(random() % 20);
    for (int i = 0; i < count; ++i) runs.add(memory.data() + random() % 1000 * 64, random() % 50);
    const auto shares = static_cast<int64_t>(1 + random() % 40);
    LineShares from(runs, shares);
    for (int64_t i = 0; i < shares; ++i) {
      const int64_t before = dealt.lines();
      from.addShare(dealt);
      EXPECT_LE(dealt.lines() - before, (runs.lines() + shares - 1) / shares);
    }
    EXPECT_EQ(linesOf(dealt, memory), linesOf(runs, memory));
    EXPECT_EQ(dealt.lines(), runs.lines());
  }
}

TEST(LineRuns, RunsBeyondTheMostAreLeftOut) {
  const std::vector<std::byte> memory(kBytes);
  LineRuns runs;
  for (size_t i = 0; i < 2 * LineRuns::kMost; ++i) runs.add(memory.data() + i * 64, 1);
  EXPECT_EQ(runs.runs().size(), LineRuns::kMost);
  EXPECT_EQ(runs.lines(), static_cast<int64_t>(LineRuns::kMost));
}

// An address that the queue takes too often or too rarely would be no error, so the queue counts what is left.
TEST(LineRuns, AQueueEndsAfterItsLines) {
  const std::vector<std::byte> memory(kBytes);
  LineRuns runs;
  runs.add(memory.data(), 5);
  runs.add(memory.data() + 6400, 1);
  runs.add(memory.data() + 12800, 4);
  LineQueue queue = runs.queue(4);  // three lines a step
  for (const int64_t left : {7, 4, 1, 0, 0}) {
    LineQueueCopy(&queue).take(1);
    EXPECT_EQ(queue.left(), left);
  }
  queue = runs.queue(0);
  EXPECT_EQ(queue.left(), 0);
}

}  // namespace
}  // namespace chorus
