#include "formats/flax_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/testing/error_of.h"
#include "formats/msgpack.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Functions that return MessagePack.
std::string bigEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes; i-- > 0;) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::string text(const std::string& s) { return "\xd9" + bigEndian(s.size(), 1) + s; }
std::string bin(const std::string& s) { return "\xc6" + bigEndian(s.size(), 4) + s; }
std::string map(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "\xde" + bigEndian(entries.size(), 2);
  for (const auto& [key, value] : entries) out += text(key) + value;
  return out;
}
std::string list(const std::vector<std::string>& items) {
  std::string out = "\xdc" + bigEndian(items.size(), 2);
  for (const auto& item : items) out += item;
  return out;
}
std::string extension(int type, const std::string& s) {
  return "\xc8" + bigEndian(s.size(), 2) + static_cast<char>(type) + s;
}
std::string array(const std::vector<std::string>& shape, const std::string& dtype, const std::string& bytes,
                  int type = 1) {
  return extension(type, list({list(shape), text(dtype), bin(bytes)}));
}
std::string chunked(const std::string& shape, const std::string& chunks) {
  return map({{"__msgpack_chunked_array__", "\xc3"}, {"shape", shape}, {"chunks", chunks}});
}

std::vector<FlaxArray> parse(const std::string& bytes) {
  return parseFlaxFile(std::as_bytes(std::span(bytes)), "f.msgpack");
}
std::string refusal(const std::string& bytes) {
  return errorOf([&] { parse(bytes); });
}
std::string valuesOf(const FlaxArray& found) {
  std::string out;
  for (const auto& chunk : found.chunks) out += std::string(reinterpret_cast<const char*>(chunk.data()), chunk.size());
  return out;
}

TEST(FlaxFileTest, ReadsTheTree) {
  const std::string bytes =
      map({{"a", map({{"kernel", array({"\x02", "\x01"}, "bfloat16", "wxyz")}, {"n", "\x05"}, {"empty", map({})}})},
           {"scalar", array({}, "float16", "pq", 3)},
           {"list", list({text("skipped"), "\xc0", list({"\x01"})})},
           {"big", chunked(map({{"0", "\x03"}}),
                           map({{"0", array({"\x02"}, "int8", "kl")}, {"1", array({"\x01"}, "int8", "m")}}))}});
  const auto arrays = parse(bytes);
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_EQ(arrays[0].name, "a/kernel");
  EXPECT_EQ(arrays[0].dtype, DType::kBFloat16);
  EXPECT_THAT(arrays[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(valuesOf(arrays[0]), "wxyz");
  EXPECT_EQ(arrays[1].name, "scalar");
  EXPECT_TRUE(arrays[1].shape.empty());
  EXPECT_EQ(arrays[2].name, "big");
  EXPECT_THAT(arrays[2].shape, ElementsAre(3));
  EXPECT_EQ(valuesOf(arrays[2]), "klm");
}

TEST(FlaxFileTest, ReadsEveryEncodingOfSizes) {
  // fixext 1 to 16 hold no array, so each must be refused for its content, not skipped.
  for (int code = 0xd4; code <= 0xd8; ++code) {
    const std::string value =
        std::string(1, static_cast<char>(code)) + "\x01" + std::string(size_t{1} << (code - 0xd4), '\0');
    EXPECT_THAT(refusal(map({{"w", value}})), HasSubstr("an array has other fields"));
  }
  const std::string inner = "\x93\x91\x01\xa4int8\xc4\x01z";  // fixarray, fixint, fixstr, bin 8
  for (const std::string& head : {std::string("\xc7") + bigEndian(inner.size(), 1), "\xc8" + bigEndian(inner.size(), 2),
                                  "\xc9" + bigEndian(inner.size(), 4)}) {
    EXPECT_EQ(valuesOf(parse("\x81\xa1w" + head + "\x01" + inner).at(0)), "z");
  }
  for (const std::string& one :
       {std::string("\xcc\x01"), "\xcd" + bigEndian(1, 2), "\xce" + bigEndian(1, 4), "\xcf" + bigEndian(1, 8),
        std::string("\xd0\x01"), "\xd1" + bigEndian(1, 2), "\xd2" + bigEndian(1, 4), "\xd3" + bigEndian(1, 8)}) {
    EXPECT_EQ(valuesOf(parse(map({{"w", array({one}, "int8", "z")}})).at(0)), "z");
  }
  EXPECT_TRUE(
      parse(map({{"f", "\xca" + bigEndian(0x3f800000, 4)}, {"d", "\xcb" + bigEndian(0, 8)}, {"t", "\xc2"}})).empty());
}

TEST(FlaxFileTest, ContradictionsAreRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("cut off"));
  EXPECT_THAT(refusal("\x90"), HasSubstr("expected a map"));
  EXPECT_THAT(refusal(map({}) + "\xc0"), HasSubstr("bytes follow"));
  EXPECT_THAT(refusal("\x81\x01\xc0"), HasSubstr("key is not a text"));
  EXPECT_THAT(refusal("\xdf\xff\xff\xff\xff"), HasSubstr("more items than bytes"));
  EXPECT_THAT(refusal(map({{"w", "\xc1"}})), HasSubstr("unknown type"));
  EXPECT_THAT(refusal("\x81\xa1\xff\xc0"), HasSubstr("not UTF-8"));
  const auto refusalOf = [](const std::string& value) { return refusal(map({{"w", value}})); };
  EXPECT_THAT(refusalOf(array({"\x02"}, "int8", "z")), HasSubstr("1 bytes where shape [2] of int8 needs 2"));
  EXPECT_THAT(refusalOf(array({"\xff"}, "int8", "z")), HasSubstr("not a list of sizes"));
  EXPECT_THAT(refusalOf(array(std::vector<std::string>(17, "\x01"), "int8", "z")), HasSubstr("not a list of sizes"));
  EXPECT_THAT(refusalOf(array({"\xcf" + bigEndian(UINT64_MAX, 8), "\x09"}, "int8", "z")), HasSubstr("overflows"));
  EXPECT_THAT(refusalOf(array({"\x01"}, "complex64", "z")), HasSubstr("dtype 'complex64'"));
  EXPECT_THAT(refusalOf(array({"\x01"}, "int4", "z")), HasSubstr("dtype 'int4'"));
  EXPECT_THAT(refusalOf(extension(2, "z")), HasSubstr("complex"));
  EXPECT_THAT(refusalOf(extension(9, "z")), HasSubstr("extension type 9"));
  EXPECT_THAT(refusalOf(extension(1, list({list({}), text("int8")}))), HasSubstr("other fields"));
  EXPECT_THAT(refusalOf(extension(1, list({list({}), text("int8"), bin("z")}) + "\xc0")), HasSubstr("bytes follow"));
  const std::string shape = map({{"0", "\x02"}}), one = array({"\x01"}, "int8", "z");
  EXPECT_EQ(refusalOf(chunked(shape, map({{"0", one}, {"1", one}}))), "");
  EXPECT_THAT(refusalOf(chunked(shape, map({{"0", one}}))), HasSubstr("needs 2"));
  EXPECT_THAT(refusalOf(chunked(shape, map({{"1", one}, {"0", one}}))), HasSubstr("not numbered"));
  EXPECT_THAT(refusalOf(chunked(shape, map({{"0", one}, {"1", array({"\x01"}, "uint8", "z")}}))),
              HasSubstr("several dtypes"));
  EXPECT_THAT(refusalOf(chunked(shape, map({{"0", "\x01"}}))), HasSubstr("not an array"));
  EXPECT_THAT(refusalOf(map({{"__msgpack_chunked_array__", "\xc3"}})), HasSubstr("lacks its shape"));
}

TEST(FlaxFileTest, NamesAndLevelsAreBounded) {
  const auto nested = [](int levels) {
    std::string tree = map({});
    for (int i = 1; i < levels; ++i) tree = map({{"k", tree}});
    return tree;
  };
  EXPECT_EQ(refusal(nested(32)), "");
  EXPECT_THAT(refusal(nested(33)), HasSubstr("32 levels"));
  const std::string one = array({"\x01"}, "int8", "z");
  EXPECT_EQ(refusal(map({{std::string(255, 'n'), one}})), "");
  EXPECT_THAT(refusal(map({{std::string(200, 'n'), map({{std::string(60, 'm'), one}})}})), HasSubstr("256 bytes"));
}

}  // namespace
}  // namespace chorus
