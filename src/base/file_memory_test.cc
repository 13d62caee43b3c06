#include "base/file_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/background_throttle.h"
#include "base/testing/error_of.h"
namespace chorus {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(FileMemory, GivesTheSmallestBufferThatFits) {
  const auto shared = std::make_shared<FileMemory>();
  FileMemory& memory = *shared;
  AlignedBuffer two = memory.take(2 * kMiB), four = memory.take(4 * kMiB);
  const void *at_two = two.data(), *at_four = four.data();
  memory.give(std::move(four));
  memory.give(std::move(two));
  const AlignedBuffer fresh = memory.take(kMiB), again = memory.take(2 * kMiB - 100), next = memory.take(4 * kMiB);
  EXPECT_EQ(fresh.size(), kMiB) << "twice the size is too much";
  EXPECT_EQ(again.data(), at_two);
  EXPECT_EQ(next.data(), at_four);
}

TEST(FileMemory, KeepsTheLargestBuffersWithinItsLimits) {
  const auto shared = std::make_shared<FileMemory>();
  FileMemory& memory = *shared;
  AlignedBuffer small = memory.take(FileMemory::kLeast - 1), huge = memory.take(FileMemory::kMost + 1);
  AlignedBuffer two = memory.take(2 * kMiB), three = memory.take(3 * kMiB), four = memory.take(4 * kMiB);
  const void *at_three = three.data(), *at_four = four.data();
  for (AlignedBuffer* given : {&two, &four, &three, &small, &huge}) memory.give(std::move(*given));
  EXPECT_EQ(memory.take(FileMemory::kLeast - 1).size(), FileMemory::kLeast - 1);
  const AlignedBuffer first = memory.take(3 * kMiB), second = memory.take(4 * kMiB), third = memory.take(2 * kMiB);
  EXPECT_EQ(first.data(), at_three);
  EXPECT_EQ(second.data(), at_four);
  EXPECT_EQ(third.size(), 2 * kMiB);
}

TEST(FileMemory, AReservationWaitsUntilThereIsRoom) {
  const auto memory = std::make_shared<FileMemory>(64 * kMiB, "--limit");
  auto first = memory->reserve(40 * kMiB, "a");
  std::atomic<bool> has_second = false;
  std::thread second([&] {
    const auto held = memory->reserve(30 * kMiB, "b");
    has_second = true;
  });
  const auto small = memory->reserve(4 * kMiB, "c"), tiny = memory->reserve(FileMemory::kUncounted, "d");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(has_second);
  first = {};
  second.join();
  EXPECT_TRUE(has_second);
  EXPECT_EQ(errorOf([&] { memory->reserve(49 * kMiB, "e.safetensors"); }),
            "e.safetensors: reading it needs 49.0 MiB of memory, and one file may take 48.0 MiB, three quarters of "
            "--limit");
  memory->reserve(48 * kMiB, "all of it is free again");
}

TEST(FileMemory, AWaitEndsWhenTheThrottlesClockThrows) {
  const auto memory = std::make_shared<FileMemory>(64 * kMiB);
  const auto held = memory->reserve(40 * kMiB, "a");
  bool late = false;
  BackgroundThrottle throttle({[&](size_t) {
                                 if (late) fail(ErrorCode::kExhausted, "late");
                                 return ThrottleClock::Duration(0);
                               },
                               [](ThrottleClock::Duration) {}, [] { return false; }});
  late = true;
  EXPECT_EQ(errorOf([&] { memory->reserve(30 * kMiB, "b", &throttle); }), "late");
  memory->reserve(8 * kMiB, "the next call has its turn");
}

TEST(FileMemory, KeptMemoryIsWithinTheLimit) {
  const auto memory = std::make_shared<FileMemory>(64 * kMiB);
  AlignedBuffer kept = memory->take(40 * kMiB);
  const void* const at = kept.data();
  memory->give(std::move(kept));
  const auto large = memory->reserve(20 * kMiB, "a");
  AlignedBuffer again = memory->take(40 * kMiB);
  EXPECT_EQ(again.data(), at);
  memory->give(std::move(again));
  const auto more = memory->reserve(8 * kMiB, "b");
  const auto last = memory->reserve(4 * kMiB, "c");
  AlignedBuffer second = memory->take(40 * kMiB);
  memory->give(std::move(second));
  EXPECT_EQ(memory->take(FileMemory::kLeast).size(), FileMemory::kLeast) << "a buffer of 40 MiB is not kept";
}

}  // namespace
}  // namespace chorus
