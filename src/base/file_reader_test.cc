#include "base/file_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/directory.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

class FileReaderTest : public testing::Test {
 protected:
  FileReaderTest() { fs::create_directories(dir_); }
  ~FileReaderTest() override { fs::remove_all(dir_); }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  FileReader reader() const { return FileReader(Directory::open(dir_)); }
  fs::path dir_ = fs::temp_directory_path() / ("chorus_file_reader_test_" + std::to_string(::getpid()));
};

TEST_F(FileReaderTest, TruncatingAFileDoesNotChangeContentsThatWereRead) {
  const std::string text(300'000, 'x');
  const fs::path path = write("a", text);
  FileReader files = reader();
  const auto contents = files.read("a", text.size());
  EXPECT_TRUE(files.unchanged());
  fs::resize_file(path, 0);
  EXPECT_EQ(contents->text(), text);
  EXPECT_FALSE(files.unchanged());
  EXPECT_EQ(reader().read("a", 0)->bytes().size(), 0u) << "an empty file is one";
}

TEST_F(FileReaderTest, AHeadIsTheFirstBytesAndTheSize) {
  write("a", "0123456789");
  FileReader files = reader();
  const auto head = files.readHead("a", 4, 10);
  EXPECT_EQ(head.contents->text(), "0123");
  EXPECT_EQ(head.file_size, 10u);
  EXPECT_EQ(files.readHead("a", 100, 10).contents->text(), "0123456789");
  EXPECT_TRUE(files.unchanged());
  EXPECT_NE(errorOf([&] { reader().readHead("a", 4, 9); }).find("the limit is"), std::string::npos);
}

TEST_F(FileReaderTest, OnlyThePartsThatAParserAsksForAreRead) {
  constexpr size_t kSize = size_t{8} << 20;
  std::string text(kSize, 'x');
  text[kSize - 1] = 'z';
  const fs::path path = write("a", text);
  FileReader files = reader();
  int calls = 0;
  const auto parse = [&](const PartialBytes& bytes) {
    EXPECT_EQ(bytes.size(), kSize);
    EXPECT_EQ(bytes.read(kSize - 1, 1)[0], std::byte{'z'});
    EXPECT_EQ(bytes.read(3, 2)[1], std::byte{'x'});
    EXPECT_TRUE(bytes.read(kSize, 0).empty());
    fs::resize_file(path, 100'000);
    EXPECT_EQ(bytes.read(0, 10)[9], std::byte{'x'}) << "read before";
    EXPECT_NE(errorOf([&] { bytes.read(kSize / 2, 1); }).find("while it was read"), std::string::npos);
    return ++calls;
  };
  EXPECT_EQ(files.readParts("a", kSize, kSize, parse), 1);
  EXPECT_FALSE(files.unchanged());
  EXPECT_NE(errorOf([&] { reader().readParts("a", 10, 10, parse); }).find("the limit is 10"), std::string::npos);
}

TEST_F(FileReaderTest, PartsTogetherHaveALimit) {
  constexpr size_t kSize = size_t{8} << 20, kMost = size_t{1} << 20;
  fs::resize_file(write("a", "x"), kSize);
  size_t read = 0;
  const auto parse = [&](const PartialBytes& bytes) {
    for (size_t at = 0; at + 50 <= kSize; at += 100) read = at + bytes.read(at, 50).size();
    return 0;
  };
  const std::string refusal = errorOf([&] { reader().readParts("a", kSize, kMost, parse); });
  EXPECT_NE(refusal.find("its header has more than 1048576 bytes"), std::string::npos) << refusal;
  EXPECT_LE(read, kMost);
  EXPECT_GE(read, kMost / 2);
  EXPECT_EQ(reader().readParts("a", kSize, kSize, parse), 0);
  EXPECT_EQ(reader().readParts(write("empty", "").filename(), 0, 0, [](const auto& bytes) { return bytes.size(); }),
            0u);
}

TEST_F(FileReaderTest, AFileThatExceedsTheFreeMemoryIsExhaustionAndNotCorruption) {
  const fs::path path = write("huge", "x");
  constexpr size_t kHuge = size_t{1} << 43;  // a hole, far beyond any machine's memory
  fs::resize_file(path, kHuge);
  try {
    reader().read("huge", kHuge);
    FAIL() << "8 TiB were read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kExhausted);
    EXPECT_NE(std::string(e.what()).find("bytes of memory are free"), std::string::npos) << e.what();
  }
}

// Two writes within one tick of the file system's clock give the file the same stamp.
TEST_F(FileReaderTest, AFileThatWasJustWrittenIsReadAfterTheNextClockTick) {
  const fs::path path = write("fresh", "x");
  reader().read("fresh", 10);
  EXPECT_GE(ageNs(stampOf(path).value()), kFileClockTickNs);
}

TEST_F(FileReaderTest, RefusesWhatIsNoFileOfItsSize) {
  const auto refusal = [&](const std::string& name, size_t limit = 1 << 20) {
    return errorOf([&] { reader().read(name, limit); });
  };
  EXPECT_EQ(refusal("none"), (dir_ / "none").string() + ": No such file or directory");
  fs::create_directory(dir_ / "sub");
  EXPECT_EQ(refusal("sub"), (dir_ / "sub").string() + ": not a regular file");
  fs::create_symlink("/dev/zero", dir_ / "zero");
  EXPECT_EQ(refusal("zero"), (dir_ / "zero").string() + ": not a regular file");
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(refusal("fifo"), (dir_ / "fifo").string() + ": not a regular file");
  const fs::path huge = write("huge", "x");
  fs::resize_file(huge, uint64_t{1} << 40);
  EXPECT_EQ(refusal("huge"), huge.string() + ": the file has 1099511627776 bytes; the limit is 1048576");
}

TEST_F(FileReaderTest, SeesEveryKindOfChange) {
  const fs::path path = write("a", "one");
  const auto changes = [&](const auto& change) {
    FileReader files = reader();
    files.read("a", 100);
    files.exists("later");
    change();
    return !files.unchanged();
  };
  EXPECT_FALSE(changes([] {}));
  EXPECT_TRUE(changes([&] { write("a", "two"); })) << "in place, the same size, at once";
  EXPECT_TRUE(changes([&] {
    const auto time = fs::last_write_time(path);
    write("a", "six");
    fs::last_write_time(path, time);
  })) << "with its time put back";
  EXPECT_TRUE(changes([&] { fs::rename(write("b", "one"), path); })) << "renamed into place";
  EXPECT_TRUE(changes([&] { write("later", ""); }));
  EXPECT_TRUE(changes([&] { fs::remove(path); }));
}

TEST_F(FileReaderTest, IsQuietASecondAfterTheLastChange) {
  using std::chrono::milliseconds;
  constexpr milliseconds kTick{20};  // more than that of the clock by which files get their times
  const auto begin = std::chrono::steady_clock::now();
  write("a", "one");
  FileReader files = reader();
  files.read("a", 100);
  const auto left = quietIn(files.newestChangeNs());
  EXPECT_GT(left, milliseconds(1000) - kTick - (std::chrono::steady_clock::now() - begin));
  EXPECT_LT(left, milliseconds(1000));
  EXPECT_EQ(quietIn(files.newestChangeNs() - 2'000'000'000).count(), 0);
  EXPECT_EQ(quietIn(files.newestChangeNs() + 3'600'000'000'000), milliseconds(1000)) << "by another clock";
}

TEST_F(FileReaderTest, ReadsAgainUntilNothingChanges) {
  write("a", "old");
  int tries = 0;
  const std::string text = readUnchanged(openerOf(dir_), [&](FileReader& files) {
    std::string read(files.read("a", 100)->text());
    if (++tries == 1) {
      write("a", "new");
      fail(ErrorCode::kCorrupt, "what a torn file looks like");
    }
    return read;
  });
  EXPECT_EQ(text, "new");
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(errorOf([&] {
              readUnchanged(openerOf(dir_), [&](FileReader& files) {
                files.read("a", 100);
                write("a", "again");
                return 0;
              });
            }),
            dir_.string() +
                ": its files change while they are read; write new ones elsewhere and rename the directory into place");
  EXPECT_EQ(errorOf([&] {
              readUnchanged(openerOf(dir_), [&](FileReader& files) -> int {
                files.read("a", 100);
                fail(ErrorCode::kCorrupt, "its own fault");
              });
            }),
            "its own fault");
}

}  // namespace
}  // namespace chorus
