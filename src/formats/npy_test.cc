#include "formats/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

NpyArray parse(const std::string& bytes) { return parseNpy(std::as_bytes(std::span(bytes)), "x.npy"); }
std::string refusal(const std::string& bytes) {
  return errorOf([&] { parse(bytes); });
}

TEST(NpyTest, RoundTripsShapesOfEveryRank) {
  const std::vector<int32_t> data{1, -2, 3, 4, 5, 6};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{6}, {2, 3}, {1, 2, 3}, {0, 7}}) {
    const std::string bytes = npyBytes(DType::kInt32, shape, data.data());
    const NpyArray array = parse(bytes);
    EXPECT_EQ(array.dtype, DType::kInt32);
    EXPECT_EQ(array.shape, shape);
    if (!array.data.empty()) {
      EXPECT_EQ(std::memcmp(array.data.data(), data.data(), 24), 0);
    }
    EXPECT_EQ((bytes.size() - array.data.size()) % 64, 0u);
  }
}

TEST(NpyTest, ReadsNumpysOwnHeader) {
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }";
  header.resize(0x75, ' ');
  bytes += header + "\n" + std::string(4, '\0');
  EXPECT_EQ(parse(bytes).dtype, DType::kFloat16);
}

TEST(NpyTest, ReadsEveryVersion) {
  for (const char version : {1, 2, 3}) {
    std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }\n";
    std::string bytes = std::string("\x93NUMPY") + version + '\0' + static_cast<char>(header.size()) + '\0';
    if (version > 1) bytes += std::string(2, '\0');
    EXPECT_EQ(parse(bytes + header + "\x07" + std::string(3, '\0')).shape, std::vector<int64_t>{1});
    std::string longer = std::string("\x93NUMPY\x02") + '\0' + "\x20\x4e" + std::string(2, '\0') + header;
    longer.resize(longer.size() + 20000, ' ');
    EXPECT_THAT(refusal(longer), testing::HasSubstr("20000 bytes"));
  }
}

TEST(NpyTest, ReadsNativeOrderAndBFloat16) {
  const std::vector<uint16_t> data{1, 2, 3, 4};
  const std::string bytes = npyBytes(DType::kBFloat16, std::vector<int64_t>{4}, data.data());
  const auto withDescr = [&](std::string_view descr) {
    std::string copy = bytes;
    return copy.replace(copy.find("|V2"), 3, descr);
  };
  for (const char* descr : {"|V2", "<V2", "=V2"}) EXPECT_EQ(parse(withDescr(descr)).dtype, DType::kBFloat16) << descr;
  for (const char* descr : {"|f2", "<f2", "=f2"}) EXPECT_EQ(parse(withDescr(descr)).dtype, DType::kFloat16) << descr;
  EXPECT_EQ(parse(withDescr("f2'").replace(bytes.find("|V2") + 3, 1, " ")).dtype, DType::kFloat16);
  for (const char* descr : {">V2", ">f2", "!f2"}) EXPECT_THAT(refusal(withDescr(descr)), testing::HasSubstr(descr));
}

// Compares with headers that NumPy 2 writes, of one and of two 64-byte blocks.
TEST(NpyTest, WritesNumpysOwnHeader) {
  const auto expected = [](std::string text, size_t size) {
    text.resize(size - 11, ' ');
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size - 10) + '\0' + text + '\n';
  };
  const auto header = [](DType dtype, std::vector<int64_t> shape) { return npyHeader(dtype, shape); };
  EXPECT_EQ(header(DType::kBFloat16, {1, 3, 7}),
            expected("{'descr': '|V2', 'fortran_order': False, 'shape': (1, 3, 7), }", 128));
  EXPECT_EQ(header(DType::kInt32, {6}), expected("{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }", 128));
  EXPECT_EQ(header(DType::kUint8, {}), expected("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 128));
}

TEST(NpyTest, WritesInPiecesAndLeavesNothingUnfinished) {
  const auto dir = std::filesystem::temp_directory_path() / ("chorus_npy_writer_test_" + std::to_string(::getpid()));
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  const std::vector<int32_t> data{1, -2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const auto bytes = std::as_bytes(std::span(data));
  {
    NpyWriter half(dir / "half.npy", DType::kInt32, shape);
    half.append(bytes.first(8));
    EXPECT_THAT(errorOf([&] { half.append(bytes); }), testing::HasSubstr("half.npy"));
    EXPECT_THAT(errorOf([&] { half.finish(); }), testing::HasSubstr("16 bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  NpyWriter whole(dir / "whole.npy", DType::kInt32, shape);
  whole.append(bytes.first(8));
  whole.append(bytes.subspan(8));
  whole.finish();
  EXPECT_EQ(readFile(dir / "whole.npy", 1000), npyBytes(DType::kInt32, shape, data.data()));
  EXPECT_THAT(errorOf([&] { NpyWriter(dir / "no/where.npy", DType::kInt32, shape); }), testing::HasSubstr("where.npy"));
  std::filesystem::remove_all(dir);
}

TEST(NpyTest, RefusesWhatItCannotRead) {
  const std::vector<int32_t> data(4, 7);
  const std::string bytes = npyBytes(DType::kInt32, std::vector<int64_t>{4}, data.data());
  const auto edit = [&](std::string_view from, std::string_view to) {
    std::string copy = bytes;
    return copy.replace(copy.find(from), from.size(), to);
  };
  EXPECT_THAT(refusal(edit("<i4", "<c8")), testing::HasSubstr("'<c8' not supported"));
  EXPECT_THAT(refusal(edit("False", " True")), testing::HasSubstr("Fortran"));
  EXPECT_THAT(refusal(edit("(4,)", "(5,)")), testing::HasSubstr("16 bytes"));
  EXPECT_THAT(refusal(edit("(4,)", "(-4,)")), testing::HasSubstr("malformed"));
  EXPECT_THAT(refusal(edit("(4,), }", "(99999999999999999,99999999999),}")), testing::HasSubstr("overflows"));
  EXPECT_THAT(refusal(edit("<i4", ">i4")), testing::HasSubstr("'>i4' not supported"));
  EXPECT_THAT(refusal(edit("<i4", "|O8")), testing::HasSubstr("'|O8' not supported"));
  EXPECT_THAT(refusal(edit(std::string_view("\x01\x00", 2), "\x01\x01")), testing::HasSubstr("npy version 1.1"))
      << "a minor version";
  EXPECT_THAT(refusal(edit("(4,)", "(4) ")), testing::HasSubstr("malformed")) << "a number to Python";
  EXPECT_THAT(refusal(edit("(4,)", "(04,)")), testing::HasSubstr("malformed")) << "no number to Python";
  EXPECT_THAT(refusal(edit("{", " ")), testing::HasSubstr("malformed"));
  EXPECT_THAT(refusal(edit("'shape': (4,), }", "'descr': '<i4', }")), testing::HasSubstr("malformed"));
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(refusal(bytes.substr(0, size)), "");
}

}  // namespace
}  // namespace chorus
