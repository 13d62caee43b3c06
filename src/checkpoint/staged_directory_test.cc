#include "checkpoint/staged_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// A matcher instead of a regular expression, because regexec() can hang under ASan with the result of ASan's regcomp().
const auto kAnyMessage = ::testing::A<const std::string&>();

class StagedDirectoryDeathTest : public testing::Test {
 protected:
  StagedDirectoryDeathTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-staged-XXXXXX").string();
    parent_ = mkdtemp(pattern.data());
  }
  ~StagedDirectoryDeathTest() override { fs::remove_all(parent_); }

  static bool always(const fs::path&) { return true; }
  // Ends the process by `signal` while one directory is published and another is being written.
  [[noreturn]] void interrupted(int signal) const {
    std::signal(signal, SIG_DFL);  // the process that runs the test may have set it to be ignored
    removeStagedOnInterrupt();
    StagedDirectory whole(parent_ / "whole", "anything", always);
    whole.publish();
    const StagedDirectory half(parent_ / "half", "anything", always);
    std::ofstream(half.path() / "file") << "half a file";
    std::raise(signal);
    while (true) ::pause();
  }

  fs::path parent_;
};

TEST_F(StagedDirectoryDeathTest, AnInterruptLeavesNothingHalf) {
  GTEST_FLAG_SET(death_test_style, "fast");  // the child shares this fixture's directory
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(interrupted(signal), testing::KilledBySignal(signal), kAnyMessage);
    EXPECT_TRUE(fs::exists(parent_ / "whole"));
    EXPECT_EQ(std::distance(fs::directory_iterator(parent_), {}), 1);
  }
}

TEST_F(StagedDirectoryDeathTest, NoNameIsRefused) {
  EXPECT_EQ(errorOf([] { StagedDirectory("", "anything", always); }), "the output directory has no name; give one");
}

}  // namespace
}  // namespace chorus
