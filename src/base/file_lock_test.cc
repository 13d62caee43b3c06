#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace chorus {
namespace {

namespace fs = std::filesystem;

class FileLockTest : public testing::Test {
 protected:
  FileLockTest() {
    std::string name = testing::TempDir() + "file_lock.XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~FileLockTest() override { fs::remove_all(dir_); }
  void removeStaleOnes() const { removeStale(dir_, ".part-", FileLock::tryDirectory); }

  fs::path dir_;
};

TEST_F(FileLockTest, OneHolderAtATime) {
  auto lock = FileLock::tryFile(dir_ / "lock");
  ASSERT_TRUE(lock);
  EXPECT_FALSE(FileLock::tryFile(dir_ / "lock"));
  const FileLock moved = std::move(*lock);
  lock.reset();
  EXPECT_FALSE(FileLock::tryFile(dir_ / "lock"));
}

TEST_F(FileLockTest, ADirectoryIsLocked) {
  {
    const LockedDirectory directory = makeLockedDirectory(dir_, ".part-");
    EXPECT_FALSE(FileLock::tryDirectory(directory.path));
    removeStaleOnes();
    EXPECT_TRUE(fs::exists(directory.path)) << "its process lives";
  }
  EXPECT_FALSE(FileLock::tryDirectory(dir_ / "missing"));
}

TEST_F(FileLockTest, OnlyStaleDirectoriesWithThePrefixAreRemoved) {
  const pid_t child = fork();
  if (child == 0) {
    const LockedDirectory directory = makeLockedDirectory(dir_, ".part-");
    std::ofstream(directory.path / "file") << "half";
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  fs::create_directories(dir_ / ".other-part-abcdef");
  const LockedDirectory own = makeLockedDirectory(dir_, ".part-");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 3);
  removeStaleOnes();
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2);
  EXPECT_TRUE(fs::exists(own.path));
  EXPECT_TRUE(fs::exists(dir_ / ".other-part-abcdef"));
  removeStale(dir_ / "missing", "", FileLock::tryDirectory);
}

}  // namespace
}  // namespace chorus
