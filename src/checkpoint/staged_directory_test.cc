#include "checkpoint/staged_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
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

  static std::optional<std::string> always(const fs::path&) { return std::nullopt; }
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

class StagedDirectoryTest : public StagedDirectoryDeathTest {
 protected:
  // A directory with the file `result` is an earlier result.
  static std::optional<std::string> foreign(const fs::path& directory) {
    return firstForeignEntry(directory,
                             [](const fs::directory_entry& entry) { return entry.path().filename() == "result"; });
  }
  StagedDirectory stage() const { return {parent_ / "out", "a result", foreign}; }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
  std::ptrdiff_t siblings() const { return std::distance(fs::directory_iterator(parent_), {}); }
};

TEST_F(StagedDirectoryTest, AForeignFileIsNamed) {
  fs::create_directory(parent_ / "out");
  for (const char* name : {"result", "z", "notes"}) write(parent_ / "out" / name, "mine");
  EXPECT_EQ(errorOf([&] { stage(); }), (parent_ / "out").string() +
                                           ": the directory has files that do not belong to a result, such as "
                                           "'notes'; choose another output directory");
}

TEST_F(StagedDirectoryTest, FilesThatAreWrittenMeanwhileStay) {
  for (const bool is_new : {true, false}) {
    fs::remove_all(parent_ / "out");
    if (!is_new) {
      fs::create_directory(parent_ / "out");
      write(parent_ / "out/result", "old");
    }
    {
      StagedDirectory staged = stage();
      write(staged.path() / "result", "new");
      fs::create_directories(parent_ / "out");
      write(parent_ / "out/notes", "mine");
      EXPECT_NE(errorOf([&] { staged.publish(); }).find("such as 'notes'"), std::string::npos);
    }
    EXPECT_TRUE(fs::exists(parent_ / "out/notes"));
    EXPECT_EQ(fs::exists(parent_ / "out/result"), !is_new);
    EXPECT_EQ(siblings(), 1);
  }
}

// Finds no foreign file when it is asked first, as if one were written just before the exchange.
TEST_F(StagedDirectoryTest, TheOldDirectoryIsLookedAtAfterTheExchange) {
  fs::create_directory(parent_ / "out");
  write(parent_ / "out/notes", "mine");
  int calls = 0;
  {
    StagedDirectory staged(parent_ / "out", "a result",
                           [&](const fs::path& directory) { return ++calls <= 2 ? std::nullopt : foreign(directory); });
    write(staged.path() / "result", "new");
    EXPECT_NE(errorOf([&] { staged.publish(); }).find("such as 'notes'"), std::string::npos);
  }
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(fs::exists(parent_ / "out/notes"));
  EXPECT_EQ(siblings(), 1);
}

TEST_F(StagedDirectoryTest, WhatAKilledProcessLeftIsRemoved) {
  const pid_t child = fork();
  if (child == 0) {
    const StagedDirectory half = stage();
    write(half.path() / "result", "half");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  fs::create_directory(parent_ / ".out.backup");
  fs::create_directory(parent_ / ".out.abcdef");
  EXPECT_EQ(siblings(), 3);
  {
    StagedDirectory staged = stage();
    const StagedDirectory other = stage();
    EXPECT_TRUE(fs::exists(staged.path())) << "its process lives";
    EXPECT_EQ(siblings(), 4);
    staged.publish();
  }
  EXPECT_TRUE(fs::exists(parent_ / "out"));
  EXPECT_EQ(siblings(), 3);
}

}  // namespace
}  // namespace chorus
