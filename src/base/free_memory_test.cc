#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMiB = size_t{1} << 20;

class FreeMemoryTest : public ::testing::Test {
 protected:
  FreeMemoryTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-memory-XXXXXX").string();
    root = mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1024 kB\nMemAvailable:    8388608 kB\n");
  }
  ~FreeMemoryTest() override { fs::remove_all(root); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
  // Writes the files of a version 2 group. inactive: bytes of `usage` that are inactive page cache.
  void group2(const std::string& path, const std::string& limit, size_t usage, size_t inactive) {
    const std::string dir = "sys/fs/cgroup/" + path + "/";
    write(dir + "memory.max", limit + "\n");
    write(dir + "memory.current", std::to_string(usage) + "\n");
    write(dir + "memory.stat", "anon 1\nfile 99999999999\nactive_file 7\ninactive_file " + std::to_string(inactive) +
                                   "\ninactive_file_other 5\n");
  }
  void group1(const std::string& path, const std::string& limit, size_t usage, size_t inactive) {
    const std::string dir = "sys/fs/cgroup/memory/" + path + "/";
    write(dir + "memory.limit_in_bytes", limit + "\n");
    write(dir + "memory.usage_in_bytes", std::to_string(usage) + "\n");
    write(dir + "memory.stat", "inactive_file 3\ntotal_inactive_file " + std::to_string(inactive) + "\n");
  }

  fs::path root;
};

TEST_F(FreeMemoryTest, WithoutGroupsItIsTheMachines) { EXPECT_EQ(freeMemory(root), 8192 * kMiB); }

TEST_F(FreeMemoryTest, PageCacheIsNotUsedMemory) {
  write("proc/self/cgroup", "0::/pod\n");
  group2("pod", std::to_string(1000 * kMiB), 900 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 100 * kMiB);
  group2("pod", std::to_string(1000 * kMiB), 900 * kMiB, 700 * kMiB);
  EXPECT_EQ(freeMemory(root), 800 * kMiB);
  group2("pod", std::to_string(1000 * kMiB), 900 * kMiB, 5000 * kMiB);
  EXPECT_EQ(freeMemory(root), 1000 * kMiB) << "no more of it than is used";
}

TEST_F(FreeMemoryTest, TheLimitsOfVersion1AreRead) {
  write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  group1("docker/abc", std::to_string(500 * kMiB), 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(freeMemory(root), 300 * kMiB);
  group1("docker/abc", "9223372036854771712", 300 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 8192 * kMiB) << "what version 1 says for no limit";
}

TEST_F(FreeMemoryTest, AContainerSeesItsOwnGroupAsTheRoot) {
  write("proc/self/cgroup", "4:cpu,memory:/docker/not-in-this-namespace\n");
  group1("", std::to_string(500 * kMiB), 300 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 200 * kMiB);
}

TEST_F(FreeMemoryTest, TheSmallestRoomOfAllAncestorsCounts) {
  write("proc/self/cgroup", "0::/kubepods/pod/container\n");
  group2("kubepods/pod/container", "max", 50 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 8192 * kMiB);
  group2("kubepods/pod", std::to_string(400 * kMiB), 100 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 300 * kMiB);
  group2("kubepods", std::to_string(2000 * kMiB), 1900 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 100 * kMiB);
  group2("kubepods/pod/container", std::to_string(60 * kMiB), 70 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 0u) << "more is used than is allowed";
}

TEST_F(FreeMemoryTest, OddValuesSetNoLimit) {
  write("proc/self/cgroup", "\nnonsense\n:\n::\n0::/pod\n0::/../../elsewhere\n");
  for (const char* limit : {"max", "", "-1", "18446744073709551616", "0x10", "1e9"}) {
    group2("pod", limit, 5 * kMiB, 0);
    EXPECT_EQ(freeMemory(root), 8192 * kMiB) << limit;
  }
  group2("pod", "18446744073709551615", 5 * kMiB, 0);
  EXPECT_EQ(freeMemory(root), 8192 * kMiB);
  group2("pod", std::to_string(10 * kMiB), 5 * kMiB, 0);
  fs::remove(root / "sys/fs/cgroup/pod/memory.current");
  fs::remove(root / "sys/fs/cgroup/pod/memory.stat");
  EXPECT_EQ(freeMemory(root), 10 * kMiB);
  write("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
  fs::remove(root / "proc/self/cgroup");
  EXPECT_GT(freeMemory(root), size_t{1} << 62);
  write("proc/meminfo", "MemFree: 2 kB\n");
  EXPECT_EQ(freeMemory(root), 2048u);
  fs::remove(root / "proc/meminfo");
  EXPECT_EQ(freeMemory(root), 0u);
}

TEST_F(FreeMemoryTest, ThisMachineHasSome) { EXPECT_GT(freeMemory(), kMiB); }

}  // namespace
}  // namespace chorus
