#include "base/git_lfs.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 9100\n";

TEST(GitLfsTest, APointerIsNamed) {
  const std::string expected = "x: a Git LFS pointer, not the file itself; fetch it with `git lfs pull`";
  EXPECT_EQ(errorOf([] { refuseGitLfsPointer(kPointer, "x"); }), expected);
  EXPECT_EQ(errorOf([] { refuseGitLfsPointer(std::as_bytes(std::span(kPointer)), "x"); }), expected);
  EXPECT_EQ(errorOf([] { parseJson(kPointer, "x"); }), expected) << "in the place of a tokenizer.json";
  EXPECT_EQ(errorOf([] { parseOrderedJson(kPointer, "x"); }), expected);
}

TEST(GitLfsTest, OtherBytesAreNot) {
  for (const std::string_view text : {"", "version", "version https://example", "{\"version\": 1}"}) {
    EXPECT_EQ(errorOf([&] { refuseGitLfsPointer(text, "x"); }), "") << text;
  }
}

}  // namespace
}  // namespace chorus
