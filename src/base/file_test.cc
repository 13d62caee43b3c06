#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace chorus {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() { std::filesystem::create_directories(dir_); }
  ~FileTest() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / ("chorus_file_test_" + std::to_string(::getpid()));
};

TEST_F(FileTest, WritesAppearWholeAndReadsAreBounded) {
  const auto path = dir_ / "a";
  writeFileAtomically(path, "hello");
  EXPECT_EQ(readFile(path, 5), "hello");
  EXPECT_THROW(readFile(path, 4), Error);
  writeFileAtomically(path, "");
  EXPECT_EQ(readFile(path, 5), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

TEST_F(FileTest, MapsRegularFilesOnly) {
  writeFileAtomically(dir_ / "a", "hello");
  MappedFile map(dir_ / "a");
  MappedFile moved(std::move(map));
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[1]), 'e');
  EXPECT_THROW(MappedFile{dir_}, Error);
  EXPECT_THROW(MappedFile{dir_ / "missing"}, Error);
  writeFileAtomically(dir_ / "empty", "");
  EXPECT_THROW(MappedFile{dir_ / "empty"}, Error);
}

TEST_F(FileTest, AFailedWriteLeavesTheOldFile) {
  EXPECT_THROW(writeFileAtomically(dir_ / "no" / "such", "x"), Error);
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_THROW(writeFileAtomically("/proc/chorus", "x"), Error);
  }
}

TEST_F(FileTest, WritesIntoWhatIsNoFileOfItsOwn) {
  writeFileAtomically(dir_ / "target", "a longer text");
  std::filesystem::create_symlink("target", dir_ / "link");
  const MappedFile before(dir_ / "target");
  writeFileAtomically(dir_ / "link", "short");
  EXPECT_EQ(before.bytes().size(), 13u) << "who has the old file open keeps it";
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ / "link"));
  EXPECT_EQ(readFile(dir_ / "target", 100), "short");

  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const int reader = ::open((dir_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  writeFileAtomically(dir_ / "pipe", "hello");
  char read[8];
  EXPECT_EQ(::read(reader, read, sizeof read), 5);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(dir_ / "pipe"));

  EXPECT_THROW(writeFileAtomically(dir_, "x"), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 3);
}

}  // namespace
}  // namespace chorus
