#include "kernels/guarded_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "kernels/default_isa.h"
#include "kernels/guarded_arena.h"
#include "kernels/registry.h"

namespace chorus {
namespace {

class GuardedBackendTest : public testing::Test {
 protected:
  GuardedBackendTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  const std::unique_ptr<Backend> backend_ = createBackend({.name = "guarded", .threads = 2});
};
using GuardedBackendDeathTest = GuardedBackendTest;

// A matcher instead of a regular expression: under ASan, regexec() can hang on an expression that ASan's regcomp()
// made.
const auto kAnyMessage = ::testing::A<const std::string&>();

TEST_F(GuardedBackendTest, UploadAndDownloadReachIt) {
  const DeviceBuffer buffer = backend_->allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  std::vector<char> host(1000, 'x');
  backend_->download(host.data(), buffer.data(), host.size(), {});
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](char c) { return c == 0; }));
  const std::string text = "written";
  backend_->upload(buffer.as<char>() + 992, text.data(), text.size() + 1, {});
  backend_->download(host.data(), buffer.as<char>() + 992, text.size() + 1, {});
  backend_->synchronize({});
  EXPECT_STREQ(host.data(), text.c_str());
}

TEST_F(GuardedBackendDeathTest, TheHostCannotTouchIt) {
  const DeviceBuffer buffer = backend_->allocate(100);
  volatile char* data = buffer.as<char>();
  EXPECT_DEATH(static_cast<void>(data[0]), kAnyMessage);
  EXPECT_DEATH(data[99] = 1, kAnyMessage);
  char host = 0;
  backend_->download(&host, buffer.data(), 1, {});
  EXPECT_DEATH(static_cast<void>(data[0]), kAnyMessage) << "a download must not make it accessible";
}

TEST_F(GuardedBackendDeathTest, ImportedWeightsAreItsOwnCopy) {
  const std::string host = "weights of a mapped file";
  size_t copied = 0;
  const auto* device = static_cast<const volatile char*>(
      backend_->importWeights(host.data(), host.size(), [&](size_t bytes) { copied += bytes; }));
  EXPECT_EQ(copied, host.size());
  std::string back(host.size(), ' ');
  backend_->download(back.data(), const_cast<const char*>(device), back.size(), {});
  EXPECT_EQ(back, host);
  EXPECT_DEATH(static_cast<void>(device[0]), kAnyMessage);
}

TEST_F(GuardedBackendDeathTest, OpsCannotLeaveTheirBuffers) {
  const DeviceBuffer table = backend_->allocate(10 * 64 * 4), out = backend_->allocate(64 * 4);
  const auto context = backend_->createContext();
  const std::vector<int32_t> tokens = {3};
  backend_->prepare({.tokens = tokens}, *context);
  EmbeddingArgs args{.table = {.data = table.data(), .vocab = 10}, .out = {out.as<float>(), 1, 64, 64}};
  backend_->embedding(args, *context, {});
  args.out = {out.as<float>() + 16, 1, 64, 64};
  EXPECT_DEATH(backend_->embedding(args, *context, {}), kAnyMessage) << "past the end";
  args.out.data = backend_->allocate(64 * 4).as<float>();  // freed at the end of this statement
  EXPECT_DEATH(backend_->embedding(args, *context, {}), kAnyMessage) << "freed";
}

TEST_F(GuardedBackendTest, EveryOpRunsOnIt) {
  for (const Op op : kOps) {
    for (const BenchCase& c : benchCasesOf(op)) {
      if (c.small) c.prepare(*backend_, 1)();
    }
  }
  for (const Op op : kOps) {
    EXPECT_TRUE(backend_->used().has(defaultVariant(op, defaultIsa(), DType::kFloat32))) << opName(op);
  }
}

TEST_F(GuardedBackendDeathTest, EachBackendHasItsOwnArena) {
  const auto other = createBackend({.name = "guarded", .threads = 1});
  const DeviceBuffer mine = backend_->allocate(64), others = other->allocate(64);
  char host[64];
  EXPECT_DEATH(backend_->download(host, others.data(), 64, {}), kAnyMessage);
  other->download(host, others.data(), 64, {});
}

TEST(GuardedArenaTest, FreedRangesAreZeroedAndUsedAgain) {
  GuardedArena arena;
  auto* first = static_cast<char*>(arena.allocate(10000));
  auto* second = static_cast<char*>(arena.allocate(100));
  arena.toHost(first)[9999] = 1;
  arena.toHost(second)[0] = 2;
  arena.free(first, 10000);
  auto* third = static_cast<char*>(arena.allocate(100));
  auto* fourth = static_cast<char*>(arena.allocate(4000));
  EXPECT_LT(third, second);
  EXPECT_LT(fourth, second) << "expected the rest of the range that the third allocation took";
  EXPECT_EQ(arena.toHost(fourth)[3999], 0);
  EXPECT_EQ(arena.toHost(second)[0], 2);
}

TEST(GuardedArenaDeathTest, OnlyAllocatedMemoryIsAccessibleAndOnlyAtHostAddresses) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  GuardedArena arena;
  auto* first = static_cast<volatile char*>(arena.allocate(64));
  auto* second = static_cast<volatile char*>(arena.allocate(5000));
  arena.toHost(second)[4999] = 1;
  EXPECT_DEATH(second[4999] = 1, kAnyMessage) << "a device address";
  EXPECT_DEATH(arena.toHost(first)[64] = 1, kAnyMessage) << "past the end";
  EXPECT_DEATH(static_cast<void>(arena.toHost(second)[5056]), kAnyMessage) << "past the end";
  arena.free(const_cast<char*>(second), 5000);
  EXPECT_DEATH(static_cast<void>(arena.toHost(second)[0]), kAnyMessage) << "freed";
  EXPECT_DEATH(arena.toHost(second)[4999] = 1, kAnyMessage) << "freed";
  char host = 0;
  EXPECT_DEATH(static_cast<void>(arena.toHost(&host)), testing::HasSubstr("not an address of this backend's memory"));
}

// Loaders upload and free while ops run on another thread.
TEST_F(GuardedBackendTest, LoadersWorkWhileOpsRun) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> loaders;
  for (int t = 0; t < 2; ++t) {
    loaders.emplace_back([&, t] {
      while (!stop) {
        const std::vector<char> host(static_cast<size_t>(5000 + t), static_cast<char>(t + 1));
        const DeviceBuffer buffer = backend_->allocate(host.size());
        backend_->upload(buffer.data(), host.data(), host.size(), {});
        std::vector<char> back(host.size());
        backend_->download(back.data(), buffer.data(), back.size(), {});
        EXPECT_EQ(back, host);
      }
    });
  }
  std::vector<BenchCall> calls;
  for (const Op op : kOps) {
    for (const BenchCase& c : benchCasesOf(op)) {
      if (c.small) calls.push_back(c.prepare(*backend_, 1));
    }
  }
  for (int i = 0; i < 200; ++i) {
    for (const BenchCall& call : calls) call();
  }
  stop = true;
  for (std::thread& loader : loaders) loader.join();
}

}  // namespace
}  // namespace chorus
