#include "base/file.h"

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace chorus
