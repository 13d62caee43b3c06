#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

using testing::HasSubstr;

TEST(BackendTest, NamesItselfAndItsVariants) {
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = createBackend({.name = name});
    EXPECT_EQ(backend->name(), name);
    EXPECT_THAT(backend->describe(), HasSubstr("linear: "));
    EXPECT_THAT(backend->describe(), HasSubstr("attention: "));
  }
}

TEST(BackendTest, EveryAvailableSetCanBeForcedAndOthersAreRefused) {
  for (const Isa isa : availableIsas()) {
    const auto backend = createBackend({.name = "cpu", .threads = 1, .isa = isa});
    EXPECT_THAT(backend->describe(), HasSubstr(isaName(isa)));
  }
  const auto missing =
      std::find(availableIsas().begin(), availableIsas().end(), Isa::kNeon) == availableIsas().end()
          ? Isa::kNeon
          : Isa::kAvx2;
  try {
    createBackend({.name = "cpu", .isa = missing});
    FAIL() << "an instruction set that is not there was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(isaName(missing)));
    EXPECT_THAT(error.what(), HasSubstr("scalar"));
  }
}

TEST(BackendTest, UnknownNameIsAnError) { EXPECT_THROW(createBackend({.name = "gpu"}), Error); }

TEST(BackendTest, BuffersAreZeroedAlignedAndMovable) {
  const auto backend = createBackend({});
  DeviceBuffer a = backend->allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  EXPECT_TRUE(std::all_of(a.as<char>(), a.as<char>() + 1000, [](char c) { return c == 0; }));
  const char text[] = "written";
  backend->upload(a.data(), text, sizeof(text), {});
  DeviceBuffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);
  char back[sizeof(text)];
  backend->download(back, b.data(), sizeof(text), {});
  backend->synchronize({});
  EXPECT_STREQ(back, text);
  EXPECT_EQ(backend->allocate(0).data(), nullptr);
  EXPECT_EQ(backend->importWeights(text, sizeof(text)), text);
}

}  // namespace
}  // namespace chorus
