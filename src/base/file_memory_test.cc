#include "base/file_memory.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(FileMemory, GivesTheSmallestBufferThatFits) {
  FileMemory memory;
  AlignedBuffer two = memory.take(2 * kMiB), four = memory.take(4 * kMiB);
  const void *at_two = two.data(), *at_four = four.data();
  memory.give(std::move(four));
  memory.give(std::move(two));
  const AlignedBuffer again = memory.take(kMiB), next = memory.take(kMiB), fresh = memory.take(kMiB);
  EXPECT_EQ(again.data(), at_two);
  EXPECT_EQ(next.data(), at_four);
  EXPECT_EQ(fresh.size(), kMiB);
}

TEST(FileMemory, KeepsTheLargestBuffersWithinItsLimits) {
  FileMemory memory;
  AlignedBuffer small = memory.take(FileMemory::kLeast - 1), huge = memory.take(FileMemory::kMost + 1);
  AlignedBuffer two = memory.take(2 * kMiB), three = memory.take(3 * kMiB), four = memory.take(4 * kMiB);
  const void *at_three = three.data(), *at_four = four.data();
  for (AlignedBuffer* given : {&two, &four, &three, &small, &huge}) memory.give(std::move(*given));
  EXPECT_EQ(memory.take(FileMemory::kLeast - 1).size(), FileMemory::kLeast - 1);
  const AlignedBuffer first = memory.take(kMiB), second = memory.take(kMiB);
  EXPECT_EQ(first.data(), at_three);
  EXPECT_EQ(second.data(), at_four);
  EXPECT_EQ(memory.take(kMiB).size(), kMiB);
}

}  // namespace
}  // namespace chorus
