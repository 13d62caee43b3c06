#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace chorus {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class ProgressTest : public testing::Test {
 protected:
  ProgressOutput output(bool terminal) {
    ProgressOutput output;
    output.write = [this](std::string_view text) { written_ += text; };
    output.now = [this] { return ProgressOutput::Clock::time_point(now_); };
    output.terminal = terminal;
    return output;
  }
  std::string written_;
  ProgressOutput::Clock::duration now_ = 1h;
};

TEST_F(ProgressTest, QuickJobsShowNothing) {
  for (const bool terminal : {true, false}) {
    Progress progress("packing", 100, Progress::Unit::kBytes, output(terminal));
    progress.add(50);
    now_ += 300ms;
    progress.add(50);
  }
  EXPECT_EQ(written_, "");
}

TEST_F(ProgressTest, TerminalLineIsDrawnOverItselfAndEnded) {
  {
    Progress progress("packing", 4'000'000'000, Progress::Unit::kBytes, output(true));
    now_ += 2s;
    progress.add(1'000'000'000);
    EXPECT_EQ(written_, "\rpacking [######..................]  25%  1.00 GB of 4.00 GB  500.0 MB/s  6 s left");
    written_.clear();
    now_ += 50ms;
    progress.add(1);
    EXPECT_EQ(written_, "") << "not ten times a second";
    now_ += 150ms;
    progress.add(2'999'999'999);
    EXPECT_THAT(written_, testing::StartsWith("\rpacking [########################] 100%  4.00 GB of 4.00 GB"));
    EXPECT_THAT(written_, testing::EndsWith(" ")) << "the longer line before it is wiped out";
    written_.clear();
  }
  EXPECT_THAT(written_, testing::EndsWith("\n"));
}

TEST_F(ProgressTest, WithoutATerminalALineIsWrittenEveryFewSeconds) {
  {
    Progress progress("converting", 10'000'000, Progress::Unit::kBytes, output(false));
    for (int i = 0; i < 100; ++i) {
      now_ += 120ms;
      progress.add(100'000);
    }
  }
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 2) << written_;
  EXPECT_THAT(written_, HasSubstr("converting 42%  4.2 MB of 10.0 MB  0.8 MB/s  7 s left\n"));
  EXPECT_THAT(written_, testing::Not(HasSubstr("\r")));
}

TEST_F(ProgressTest, ItemsAndLongJobs) {
  Progress progress("adapters", 1000, Progress::Unit::kItems, output(false));
  now_ += 100s;
  progress.add(10);
  EXPECT_EQ(written_, "adapters 1%  10 of 1000  0.1/s  2:45 h left\n");
}

TEST_F(ProgressTest, ThreadsAddUp) {
  ProgressOutput quiet = output(true);
  quiet.now = ProgressOutput::Clock::now;
  quiet.enabled = false;
  Progress progress("packing", 0, Progress::Unit::kBytes, quiet);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) progress.add(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(progress.done(), 120000u);
  EXPECT_EQ(written_, "");
}

}  // namespace
}  // namespace chorus
