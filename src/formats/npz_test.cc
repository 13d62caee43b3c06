#include "formats/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "base/testing/error_of.h"
#include "formats/testing/torch_test_file.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string arrayOf(const std::vector<float>& values) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
  return npyBytes(DType::kFloat32, shape, values.data());
}
// A raw deflate stream.
std::string deflated(const std::string& bytes) {
  z_stream stream = {};
  ::deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}
uint32_t sumOf(const std::string& bytes) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}
TestZip::Entry stored(const std::string& name, const std::string& bytes) {
  return {.name = name, .bytes = bytes, .crc32 = sumOf(bytes)};
}
TestZip::Entry packed(const std::string& name, const std::string& bytes) {
  return {.name = name, .bytes = deflated(bytes), .method = 8, .unpacked_size = bytes.size(), .crc32 = sumOf(bytes)};
}

// The values of all arrays.
std::vector<std::vector<float>> valuesOf(const std::string& archive) {
  const NpzFile file = NpzFile::parse(std::as_bytes(std::span(archive)), "f.npz");
  std::vector<std::vector<float>> result;
  for (const NpzArray& array : file.arrays()) {
    std::string bytes;
    file.unpack(array, [&](std::span<const std::byte> piece) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    if (!array.entry.deflated) {
      const auto at = file.stored(array);
      EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(at.data()), at.size()));
    }
    std::vector<float>& values = result.emplace_back(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return result;
}
std::string refusal(const TestZip& zip) {
  const std::string archive = zip.build();
  return errorOf([&] { valuesOf(archive); });
}

TEST(NpzTest, ReadsStoredAndCompressedArrays) {
  const TestZip zip = {.entries = {stored("a/b.npy", arrayOf({1, 2})), packed("c.npy", arrayOf({3, 4, 5}))}};
  EXPECT_THAT(valuesOf(zip.build()), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4, 5)));
  const std::string archive = zip.build();
  const NpzFile file = NpzFile::parse(std::as_bytes(std::span(archive)), "f.npz");
  EXPECT_EQ(file.arrays()[0].name, "a/b");
  EXPECT_EQ(file.arrays()[1].name, "c");
  EXPECT_TRUE(file.arrays()[1].entry.deflated);
  // Large enough for several pieces.
  std::vector<float> many(200'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 977);
  EXPECT_EQ(valuesOf(TestZip{.entries = {packed("m.npy", arrayOf(many))}}.build()).at(0), many);
  EXPECT_EQ(valuesOf(TestZip{.entries = {stored("m.npy", arrayOf(many))}}.build()).at(0), many);
  EXPECT_TRUE(valuesOf(TestZip{}.build()).empty());
}

TEST(NpzTest, FortranOrderIsKept) {
  std::string bytes = npyBytes(DType::kFloat32, std::vector<int64_t>{2, 1}, std::vector<float>{1, 2}.data());
  bytes.replace(bytes.find("False"), 5, "True ");
  const std::string archive = TestZip{.entries = {stored("a.npy", bytes)}}.build();
  EXPECT_TRUE(NpzFile::parse(std::as_bytes(std::span(archive)), "f").arrays()[0].header.fortran_order);
}

TEST(NpzTest, DamageIsRefused) {
  const std::string array = arrayOf({3, 4, 5});
  TestZip::Entry entry = packed("a.npy", array);
  entry.crc32 += 1;
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("checksum"));
  entry = stored("a.npy", array);
  entry.bytes.back() ^= 1;
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("checksum"));
  entry = packed("a.npy", array);
  entry.bytes.resize(entry.bytes.size() / 2);
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("cut off"));
  entry = packed("a.npy", array);
  entry.bytes += "x";
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("bytes follow its end"));
  entry = packed("a.npy", array);
  entry.bytes[0] = '\xff';
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("damaged"));
  for (const int more : {-1, 1}) {
    entry = packed("a.npy", array);
    entry.unpacked_size += more;
    EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("its header expects"));
  }
  // The header and the directory agree, and the stream does not.
  entry = packed("a.npy", array + "xxxx");
  entry.unpacked_size = array.size();
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("more bytes than its entry says"));
  entry = packed("a.npy", array.substr(0, array.size() - 4));
  entry.unpacked_size = array.size();
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("fewer bytes than its entry says"));
  EXPECT_THAT(refusal({.entries = {stored("a.npy", array + "x")}}), HasSubstr("its header expects"));
  EXPECT_THAT(refusal({.entries = {stored("a.txt", "words")}}), HasSubstr("not an .npy file"));
  std::string archive = TestZip{.entries = {stored("a.npy", array)}}.build();
  char& version = archive[archive.find("PK\x01\x02") + 6];
  version = 63;
  EXPECT_EQ(errorOf([&] { valuesOf(archive); }), "");
  version = 64;
  EXPECT_THAT(errorOf([&] { valuesOf(archive); }), HasSubstr("needs version 6.4 of the zip format"));
  entry = stored("a.npy", array);
  entry.method = 12;
  EXPECT_THAT(refusal({.entries = {entry}}), HasSubstr("compressed by method 12"));
}

}  // namespace
}  // namespace chorus
