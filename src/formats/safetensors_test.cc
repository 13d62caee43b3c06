#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "base/testing/thread_time.h"
#include "formats/huggingface_files.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TemporaryDirectory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "safetensors.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

std::string fileOf(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

Safetensors parse(const std::string& bytes) { return Safetensors::parse(std::as_bytes(std::span(bytes)), "x"); }
std::string refusal(const std::string& header, const std::string& data) {
  return errorOf([&] { parse(fileOf(header, data)); });
}

TEST(SafetensorsTest, AHeaderAloneHasNamesTypesAndShapes) {
  const std::string header = R"({"a":{"dtype":"F16","shape":[1024,1024],"data_offsets":[0,2097152]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[2097152,2097160]}})";
  const std::string head = fileOf(header, "");
  const auto bytes = std::as_bytes(std::span(head));
  const uint64_t file_bytes = head.size() + 2097160;
  EXPECT_EQ(Safetensors::headerBytes(bytes.first(8), file_bytes, "x"), head.size());
  const Safetensors file = Safetensors::parseHeader(bytes, file_bytes, "x");
  EXPECT_FALSE(file.hasValues());
  EXPECT_TRUE(file.fileBytes().empty());
  EXPECT_THAT(file.names(), ElementsAre("a", "b"));
  EXPECT_THAT(file.find("a")->shape, ElementsAre(1024, 1024));
  EXPECT_EQ(file.find("b")->bytes.size(), 8u);
  EXPECT_EQ(file.find("b")->bytes[7], std::byte{0});
  EXPECT_GE(file.zeros().size(), size_t{1024} * 1024 * 4) << "as float32";

  const auto refused = [&](std::span<const std::byte> of, uint64_t size) {
    return errorOf([&] { Safetensors::parseHeader(of, size, "x"); });
  };
  EXPECT_THAT(refused(bytes, file_bytes - 1), HasSubstr("truncated or damaged"));
  EXPECT_THAT(refused(bytes, file_bytes + 1), HasSubstr("1 bytes follow the last tensor"));
  EXPECT_THAT(refused(bytes, 20), HasSubstr("in a file of 20"));
  EXPECT_THAT(refused(bytes.first(30), file_bytes), HasSubstr("cut to 30 bytes"));
  EXPECT_THAT(refused(bytes.first(7), file_bytes), HasSubstr("too few"));
}

TEST(SafetensorsTest, ReadsTensorsInOrderOfBytes) {
  const std::string bytes = fileOf(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"e":{"dtype":"F64","shape":[0,3],"data_offsets":[9,9]}})",
      "abcdefghi");
  const Safetensors file = parse(bytes);
  EXPECT_THAT(file.names(), ElementsAre("a", "b", "e"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_NE(file.find("a"), nullptr);
  EXPECT_EQ(file.find("a")->dtype, DType::kFloat32);
  EXPECT_THAT(file.find("a")->shape, ElementsAre(2, 1));
  EXPECT_EQ(std::memcmp(file.find("a")->bytes.data(), "abcdefgh", 8), 0);
  EXPECT_EQ(file.find("b")->elements(), 1);
  EXPECT_EQ(file.find("e")->elements(), 0);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(SafetensorsTest, RefusesHeadersThatLie) {
  EXPECT_THAT(errorOf([] { parse("abc"); }), HasSubstr("too few"));
  EXPECT_THAT(errorOf([] { parse(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)); }), HasSubstr("truncated"));
  EXPECT_THAT(refusal("[]", ""), HasSubstr("begin"));
  EXPECT_THAT(refusal("{", ""), HasSubstr("malformed JSON"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "abcd"), HasSubstr("truncated"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"), HasSubstr("needs 8"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "abcd"), HasSubstr("outside"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "abcd"), HasSubstr("shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "abcd"), HasSubstr("shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", "abcd"),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", "a"), HasSubstr("F8_E5M2"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":1}})", "a"), HasSubstr("expected"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", ""), HasSubstr("string"));
}

TEST(SafetensorsTest, RefusesHolesOverlapsAndDuplicates) {
  const std::string a = R"("a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})", "abc"),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"I8","shape":[1],"data_offsets":[3,4]}})", "abcd"), HasSubstr("hole"));
  EXPECT_THAT(refusal("{" + a + "}", "abc"), HasSubstr("1 bytes follow"));
  EXPECT_THAT(refusal("{" + a + "," + a + "}", "ab"), HasSubstr("'a' appears twice"));
}

TEST(SafetensorsTest, RefusesHeadersOfAnotherForm) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a":1})", "expected an object"},
      {R"({"a":[1]})", "expected an object"},
      {R"({"a":{}})", "expected an object"},
      {R"({"a":{"dtype":"I8"}})", "expected an object"},
      {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", "dtype must be a string"},
      {R"({"a":{"dtype":["I8"],"shape":[1],"data_offsets":[0,1]}})", "dtype must be a string"},
      {R"({"a":{"dtype":"I8","shape":"1","data_offsets":[0,1]}})", "shape must be"},
      {R"({"a":{"dtype":"I8","shape":{},"data_offsets":[0,1]}})", "shape must be"},
      {R"({"a":{"dtype":"I8","shape":[[1]],"data_offsets":[0,1]}})", "shape must hold"},
      {R"({"a":{"dtype":"I8","shape":[null],"data_offsets":[0,1]}})", "shape must hold"},
      {R"({"a":{"dtype":"I8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "at most 16"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", "two sizes"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,1]}})", "two sizes"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,"1"]}})", "two sizes"},
      {R"({"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "'dtype' appears twice"},
      {R"({"__metadata__":[]})", "__metadata__ must be an object"},
      {R"({"__metadata__":{"a":{}}})", "must be a string"},
      {R"({"__metadata__":{"a":"","a":""}})", "'a' appears twice"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}} x)", "malformed JSON"},
      {R"({"a":{"dtype":"I8","shape":[1e400],"data_offsets":[0,1]}})", "number outside the range of a double"},
      {R"({"a":{"a":{"a":{"a":{"a":1}}}}})", "deeper than 4"},
  };
  for (const auto& [header, expected] : cases) EXPECT_THAT(refusal(header, "x"), HasSubstr(expected)) << header;
}

std::string manyTensors(size_t count) {
  std::string header = "{";
  for (size_t i = 0; i < count; ++i) {
    header += fmt::format(R"({}"{:x}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i > 0 ? "," : "", i);
  }
  return header + "}";
}

TEST(SafetensorsTest, BoundsTheHeaderAndItsTensors) {
  EXPECT_EQ(parse(fileOf(manyTensors(Safetensors::kMaxTensors), "")).names().size(), Safetensors::kMaxTensors);
  EXPECT_THAT(refusal(manyTensors(Safetensors::kMaxTensors + 1), ""), HasSubstr("more than 262144 tensors"));
  std::string header = "{}";
  header.resize(Safetensors::kMaxHeaderBytes, ' ');
  EXPECT_TRUE(parse(fileOf(header, "")).names().empty());
  EXPECT_THAT(refusal(header + " ", ""), HasSubstr("the safetensors header has 33554433 bytes"));
}

// A JSON document of such a header took 50 bytes of memory or more per byte of the header.
TEST(SafetensorsTest, TakesLittleMemoryAndTimeForAHeader) {
  const std::string bytes = fileOf(manyTensors(200'000), "");
  const auto used = [] { return static_cast<double>(::mallinfo2().uordblks + ::mallinfo2().hblkhd); };
  const double before = used();
  const auto begin = threadTime();
  const Safetensors file = parse(bytes);
  const std::chrono::duration<double> took = threadTime() - begin;
  EXPECT_LT(used() - before, 16 * static_cast<double>(bytes.size()));
  EXPECT_LT(took.count(), 10) << "quadratic parsing takes minutes";
}

using SafetensorsFileTest = TemporaryDirectory;

TEST_F(SafetensorsFileTest, WriterRoundTripsInAnyOrderAndAlignsEveryTensor) {
  const auto path = dir_ / "t.safetensors";
  {
    SafetensorsWriter writer(path,
                             {{"h", DType::kBFloat16, {3}}, {"f", DType::kFloat32, {2}}, {"s", DType::kInt8, {}}});
    const uint16_t h[] = {1, 2, 3};
    const float f[] = {4.0f, 5.0f};
    writer.write("s", 0, std::as_bytes(std::span("x", 1)));
    writer.write("h", 2, std::as_bytes(std::span(h)).subspan(2));
    writer.write("f", 0, std::as_bytes(std::span(f)));
    writer.write("h", 0, std::as_bytes(std::span(h)).first(2));
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
  }
  const Safetensors file = Safetensors::open(path);
  EXPECT_THAT(file.names(), ElementsAre("f", "h", "s"));
  for (const auto& name : file.names()) {
    const auto* tensor = file.find(name);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->bytes.data()) % dtypeSize(tensor->dtype), 0u) << name;
  }
  const uint16_t h[] = {1, 2, 3};
  EXPECT_EQ(std::memcmp(file.find("h")->bytes.data(), h, 6), 0);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(SafetensorsFileTest, AnUnfinishedWriterLeavesNothing) {
  {
    SafetensorsWriter writer(dir_ / "t.safetensors", {{"h", DType::kInt8, {3}}});
    EXPECT_THAT(errorOf([&] { writer.finish(); }), HasSubstr("0 of its 3"));
    EXPECT_THAT(errorOf([&] { writer.write("h", 2, std::as_bytes(std::span("xy", 2))); }), HasSubstr("outside"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

class ShardedTest : public TemporaryDirectory {
 protected:
  void shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<SafetensorsWriter::Declaration> tensors;
    for (const auto& name : names) tensors.push_back({name, DType::kInt8, {1}});
    SafetensorsWriter writer(dir_ / file, tensors);
    for (const auto& name : names) writer.write(name, 0, std::as_bytes(std::span(name)).first(1));
    writer.finish();
  }
  void index(const std::string& weight_map) {
    writeFileAtomically(dir_ / "model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + weight_map + "}");
  }
  std::string refusal() {
    return errorOf([&] { HuggingFaceFiles::open(dir_); });
  }
};

TEST_F(ShardedTest, MapsNamesToShards) {
  shard("m-1.safetensors", {"b", "a"});
  shard("m-2.safetensors", {"c"});
  index(R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"})");
  const HuggingFaceFiles source = HuggingFaceFiles::open(dir_);
  EXPECT_THAT(source.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(source.find("c")->bytes[0], std::byte{'c'});
  EXPECT_THAT(source.fileOf("c"), HasSubstr("m-2"));
  EXPECT_EQ(source.find("d"), nullptr);
}

TEST_F(ShardedTest, RefusesAnIndexThatLies) {
  EXPECT_THAT(refusal(), HasSubstr("neither"));
  writeFileAtomically(dir_ / "pytorch_model.bin", "x");
  EXPECT_THAT(refusal(), HasSubstr("pytorch_model.bin: not a PyTorch file"));
  shard("m-1.safetensors", {"a", "b"});
  index(R"({"a":"../m-1.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("same directory"));
  index(R"({"a":"m-9.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("m-9.safetensors is missing"));
  index(R"({"a":"m-1.safetensors","c":"m-1.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("'c' is not in m-1"));
  index(R"({"a":"m-1.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("'b' is not in the weight_map"));
  index("[]");
  EXPECT_THAT(refusal(), HasSubstr("weight_map"));
}

}  // namespace
}  // namespace chorus
