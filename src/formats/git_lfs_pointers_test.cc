// Every format whose files Git LFS usually keeps names a pointer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "base/partial_bytes.h"
#include "base/testing/error_of.h"
#include "formats/flax_file.h"
#include "formats/npy.h"
#include "formats/npz.h"
#include "formats/sentencepiece_model.h"
#include "formats/tar_archive.h"
#include "formats/tensor_file.h"

namespace chorus {
namespace {

TEST(GitLfsPointersTest, AreNamedInThePlaceOfEveryKindOfFile) {
  constexpr std::string_view kPointer =
      "version https://git-lfs.github.com/spec/v1\n"
      "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 9100\n";
  const std::span<const std::byte> bytes = std::as_bytes(std::span(kPointer));
  const auto is_named = testing::HasSubstr("a Git LFS pointer, not the file itself");
  for (const char* name : {"x.safetensors", "x.bin"}) {
    EXPECT_THAT(errorOf([&] { parseTensorFile(bytes, name, nullptr); }), is_named) << name;
  }
  EXPECT_THAT(errorOf([&] { parseSafetensorsHeader(bytes, bytes.size(), "x.safetensors"); }), is_named);
  EXPECT_THAT(errorOf([&] { parseNpy(bytes, "x.npy"); }), is_named);
  EXPECT_THAT(errorOf([&] { NpzFile::parse(bytes, "x.npz"); }), is_named);
  EXPECT_THAT(errorOf([&] { parseFlaxFile(bytes, "x.msgpack"); }), is_named);
  EXPECT_THAT(errorOf([&] { parseSentencePieceModel(bytes, "x.model"); }), is_named);
  EXPECT_THAT(errorOf([&] { readTar(PartialBytes(bytes), "x.nemo"); }), is_named);
}

}  // namespace
}  // namespace chorus
