#include "kernels/moved_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/aligned_buffer.h"
#include "base/file.h"

namespace chorus {
namespace {

// Maps a file of random bytes. The file is already removed and disappears with its mapping.
MappedFile randomFile(size_t bytes) {
  const auto path = std::filesystem::temp_directory_path() / ("chorus_moved_" + std::to_string(::getpid()));
  std::mt19937_64 rng(bytes);
  std::string content(bytes, '\0');
  for (char& c : content) c = static_cast<char>(rng());
  std::ofstream(path, std::ios::binary) << content;
  MappedFile file(path);
  std::filesystem::remove(path);
  return file;
}

// Kilobytes of the mappings within [begin, begin + size) that smaps counts under `field`.
size_t residentKilobytes(const void* begin, size_t size, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  size_t total = 0;
  bool within = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2 && line.find(':') > line.find(' ')) {
      const auto start = reinterpret_cast<uintptr_t>(begin);
      within = from >= start && from < start + size;
    } else if (within && line.starts_with(field + ":")) {
      total += std::stoul(line.substr(field.size() + 1));
    }
  }
  return total;
}

TEST(MovedWeightsTest, WeightsKeepTheirBytesInAnonymousPages) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{2} << 20, (size_t{35} << 20) + 4097}) {
    const MappedFile file = randomFile(bytes);
    for (const int threads : {1, 3}) {
      std::atomic<size_t> told = 0;
      MovedWeights weights(file.bytes().data(), bytes);
      ASSERT_NE(weights.data(), nullptr);
      weights.start(threads, threads == 1, [&](size_t moved) { told += moved; });
      EXPECT_NE(weights.data(), static_cast<const void*>(file.bytes().data()));
      EXPECT_EQ(std::memcmp(weights.data(), file.bytes().data(), bytes), 0) << "while they move";
      weights.wait();
      EXPECT_EQ(std::memcmp(weights.data(), file.bytes().data(), bytes), 0);
      const size_t pages = (bytes + 4095) / 4096 * 4;
      EXPECT_EQ(told, pages * 1024);
      EXPECT_GE(residentKilobytes(weights.data(), bytes, "Anonymous"), pages) << "not all pages were moved";
    }
  }
}

TEST(MovedWeightsTest, ReadersSeeNothingOfTheMove) {
  constexpr size_t kBytes = size_t{48} << 20;
  const MappedFile file = randomFile(kBytes);
  const auto* expected = reinterpret_cast<const uint64_t*>(file.bytes().data());
  for (int round = 0; round < 2; ++round) {
    MovedWeights weights(file.bytes().data(), kBytes);
    ASSERT_NE(weights.data(), nullptr);
    const auto* words = static_cast<const uint64_t*>(weights.data());
    std::atomic<bool> stop = false;
    std::atomic<size_t> wrong = 0;
    std::vector<std::thread> readers;
    for (int r = 0; r < 2; ++r) {
      readers.emplace_back([&, r] {
        for (std::mt19937_64 rng(static_cast<uint64_t>(r)); !stop;) {
          const size_t at = rng() % (kBytes / 8);
          if (words[at] != expected[at]) ++wrong;
        }
      });
    }
    weights.start(1, true, nullptr);
    weights.wait();
    stop = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(MovedWeightsTest, EndsInTheMiddle) {
  const MappedFile file = randomFile(size_t{64} << 20);
  for (int i = 0; i < 5; ++i) {
    MovedWeights weights(file.bytes().data(), file.bytes().size());
    ASSERT_NE(weights.data(), nullptr);
    weights.start(2, false, nullptr);
  }
}

TEST(MovedWeightsTest, OtherMemoryIsLeftAlone) {
  const AlignedBuffer memory(size_t{1} << 20);
  EXPECT_EQ(MovedWeights(memory.data(), memory.size()).data(), nullptr);
  EXPECT_EQ(MovedWeights(memory.as<char>() + 1, 100).data(), nullptr);
  EXPECT_EQ(MovedWeights(nullptr, 0).data(), nullptr);
}

}  // namespace
}  // namespace chorus
