#include "kernels/backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include "base/file.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

TEST(BackendTest, EveryNameMakesABackendOfThatName) {
  for (const std::string& name : backendNames()) EXPECT_EQ(createBackend({.name = name})->name(), name);
  EXPECT_EQ(errorOf([] { createBackend({.name = "gpu"}); }), "unknown backend gpu; use one of cpu, guarded, reference");
}

TEST(BackendTest, SetsThatAreNotThereAreRefused) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmxInt8, Isa::kAmx, Isa::kNeon, Isa::kNeonDot}) {
    const auto& isas = availableIsas();
    const std::string error = errorOf([&] { createBackend({.name = "cpu", .threads = 1, .isa = isa}); });
    if (std::find(isas.begin(), isas.end(), isa) != isas.end()) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_EQ(error, fmt::format("isa {}: this machine runs {}", isaName(isa), availableIsaNames()));
    }
  }
}

TEST(BackendTest, BuffersAreZeroedAlignedAndMovable) {
  const auto backend = createBackend({});
  DeviceBuffer a = backend->allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  EXPECT_TRUE(std::all_of(a.as<char>(), a.as<char>() + 1000, [](char c) { return c == 0; }));
  const char text[] = "written";
  backend->upload(a.data(), text, sizeof(text), {});
  DeviceBuffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): a moved-from buffer must be empty
  char back[sizeof(text)];
  backend->download(back, b.data(), sizeof(text), {});
  backend->synchronize({});
  EXPECT_STREQ(back, text);
  EXPECT_EQ(backend->allocate(0).data(), nullptr);
  EXPECT_EQ(backend->importWeights(text, sizeof(text), nullptr), text);
}

size_t residentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

TEST(BackendTest, LargeWeightsTakeTheirMemoryOnceWhileTheyAreMoved) {
  constexpr size_t kMiB = size_t{1} << 20;
  constexpr size_t kSize = 320 * kMiB + 12288;
  const auto path = std::filesystem::temp_directory_path() / fmt::format("chorus_import_{}", ::getpid());
  std::ofstream(path) << "weights";
  std::filesystem::resize_file(path, kSize);
  const MappedFile file(path);
  std::filesystem::remove(path);
  const auto backend = createBackend({});
  const size_t before = residentBytes();
  std::mutex mutex;
  size_t imported = 0, peak = 0;
  const void* weights = backend->importWeights(file.bytes().data(), kSize, [&](size_t bytes) {
    const std::lock_guard lock(mutex);
    imported += bytes;
    peak = std::max(peak, residentBytes());
  });
  if (weights == file.bytes().data()) {  // too little memory on this machine: the weights were not moved
    EXPECT_EQ(imported, 0u);
    return;
  }
  EXPECT_STREQ(static_cast<const char*>(weights), "weights");
  EXPECT_EQ(imported, kSize);
  EXPECT_LT(peak, before + kSize + 8 * 17 * kMiB) << "peak memory exceeds the moved weights and the pieces in progress";

  const auto background = createBackend({.import_in_background = true});
  weights = background->importWeights(file.bytes().data(), kSize, nullptr);
  EXPECT_STREQ(static_cast<const char*>(weights), "weights");
  background->synchronize({});
  EXPECT_STREQ(static_cast<const char*>(weights), "weights");
}

}  // namespace
}  // namespace chorus
