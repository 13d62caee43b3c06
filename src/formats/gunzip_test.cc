#include "formats/gunzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/testing/error_of.h"
#include "formats/testing/tar_test_file.h"

namespace chorus {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMost = uint64_t{1} << 30;

std::string unpacked(const std::string& packed, uint64_t max_bytes = kMost, UnpackTo to = UnpackTo::kMemory) {
  const auto file = gunzip(std::as_bytes(std::span(packed)), "f", max_bytes, to);
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}
std::string refusalOf(const std::string& packed, uint64_t max_bytes = kMost) {
  return errorOf([&] { unpacked(packed, max_bytes); });
}
// Text that gzip packs to about a third.
std::string someText() {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += fmt::format("{} ", i * 7919 % 50021);
  return text;
}

TEST(GunzipTest, UnpacksIntoMemoryAndIntoAFileWithoutAName) {
  std::string directory = testing::TempDir() + "gunzip.XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const char* const old = ::getenv("TMPDIR");
  const std::string before = old != nullptr ? old : "";
  ::setenv("TMPDIR", directory.c_str(), 1);
  for (const std::string& text : {std::string("x"), someText()}) {
    for (const UnpackTo to : {UnpackTo::kMemory, UnpackTo::kTemporaryFile}) {
      EXPECT_EQ(unpacked(gzipped(text), kMost, to), text);
      EXPECT_TRUE(std::filesystem::is_empty(directory));
    }
  }
  if (old != nullptr) {
    ::setenv("TMPDIR", before.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
  std::filesystem::remove_all(directory);
}

TEST(GunzipTest, JoinsTheParts) { EXPECT_EQ(unpacked(gzipped("one ") + gzipped("two")), "one two"); }

TEST(GunzipTest, UnpacksOneLayer) {
  const std::string inner = gzipped("text");
  EXPECT_EQ(unpacked(gzipped(inner)), inner);
}

TEST(GunzipTest, RefusesMoreThanTheBound) {
  const std::string packed = gzipped(someText());
  EXPECT_EQ(unpacked(packed, someText().size()), someText());
  EXPECT_THAT(refusalOf(packed, someText().size() - 1), HasSubstr("f: it unpacks to more than "));
}

TEST(GunzipTest, RefusesBombs) {
  const std::string zeros(uint64_t{64} << 20, '\0');
  EXPECT_THAT(refusalOf(gzipped(zeros)), HasSubstr("more than 1000 times its size"));
}

TEST(GunzipTest, RefusesDamage) {
  EXPECT_THAT(refusalOf(""), HasSubstr("f: damaged gzip file"));
  EXPECT_THAT(refusalOf("\x1f\x8b"), HasSubstr("f: damaged gzip file"));
  EXPECT_THAT(refusalOf(gzipped("")), HasSubstr("it holds no data"));
  const std::string packed = gzipped(someText());
  EXPECT_THAT(refusalOf(packed.substr(0, packed.size() / 2)), HasSubstr("f: damaged gzip file"));
  std::string broken = packed;
  for (size_t i = 100; i < 200; ++i) broken[i] = static_cast<char>(0xff);
  EXPECT_NE(refusalOf(broken), "");
}

}  // namespace
}  // namespace chorus
