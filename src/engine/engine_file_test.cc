#include "engine/engine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "engine/engine_file_writer.h"

namespace chorus {
namespace {

class EngineFileTest : public testing::Test {
 protected:
  EngineFileTest() { std::filesystem::create_directories(dir_); }
  ~EngineFileTest() override { std::filesystem::remove_all(dir_); }

  std::string writeSample() {
    EngineFileWriter writer(
        dir_ / "rank0.engine",
        {{.name = "a", .kind = EngineTensorKind::kVector, .rows = 1, .cols = 3},
         {.name = "b", .kind = EngineTensorKind::kLinear, .dtype = DType::kBFloat16, .rows = 17, .cols = 5}},
        weightPacker("cpu"));
    std::memset(writer.data(0), 1, 12);
    std::memset(writer.data(1), 2, writer.tensors()[1].bytes);
    writer.commit();
    return readFile(dir_ / "rank0.engine", 1 << 20);
  }
  static std::vector<EngineTensor> parse(std::string_view bytes) {
    return parseEngineFile(std::as_bytes(std::span(bytes)), "x.engine", weightPacker("cpu"));
  }
  static std::string refusal(const std::string& bytes) {
    return errorOf([&] { parse(bytes); });
  }

  std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / ("chorus_engine_file_test_" + std::to_string(::getpid()));
};

TEST_F(EngineFileTest, ReadsWhatItWrote) {
  const std::string bytes = writeSample();
  const auto tensors = parse(bytes);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].bytes, 12u);
  EXPECT_EQ(tensors[1].bytes, 2u * 3 * 64);  // two panels of three input pairs
  EXPECT_EQ(bytes[tensors[1].offset], 2);
  EXPECT_EQ(tensors[1].offset % 4096, 0u);
}

TEST_F(EngineFileTest, FormatsOfQuantisedLinearsAreKept) {
  const WeightFormat formats[] = {{DType::kInt8, 0, DType::kBFloat16},
                                  {DType::kInt4, 32, DType::kFloat16, InputFormat::kInt8},
                                  {DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken},
                                  {DType::kInt4, 0, DType::kFloat32}};
  std::vector<EngineTensor> tensors;
  for (const WeightFormat& format : formats) {
    tensors.push_back({.name = fmt::format("t{}", tensors.size()),
                       .kind = EngineTensorKind::kLinear,
                       .dtype = format.dtype,
                       .rows = 18,
                       .cols = 64,
                       .group = format.group,
                       .scale_dtype = format.scale_dtype,
                       .activations = format.activations});
  }
  EngineFileWriter(dir_ / "rank0.engine", tensors, weightPacker("cpu")).commit();
  std::string bytes = readFile(dir_ / "rank0.engine", 1 << 20);
  const auto read = parse(bytes);
  ASSERT_EQ(read.size(), std::size(formats));
  for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i].format(), formats[i]) << i;
  // `other` must be as long as `given`, because the file begins with the number of bytes of its index.
  const auto with = [&](std::string_view given, std::string_view other) {
    std::string changed = bytes;
    changed.replace(changed.find(given), given.size(), other);
    return changed;
  };
  EXPECT_THAT(refusal(with("\"activations\":\"int8\"", "\"activations\":\"int4\"")),
              testing::HasSubstr("t1 has activations 'int4'"));
  EXPECT_THAT(refusal(with("int8_per_token\",\"bytes\":", "int8_per_tokem\",\"bytes\":")),
              testing::HasSubstr("t2 has activations 'int8_per_tokem'"));
}

TEST_F(EngineFileTest, RefusesEveryTruncationWithOneLine) {
  const std::string bytes = writeSample();
  for (size_t size = 0; size + 4096 < bytes.size(); size += size < 700 ? 1 : 512) {
    const std::string error = refusal(bytes.substr(0, size));
    EXPECT_NE(error, "") << size;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST_F(EngineFileTest, RefusesAnotherVersionAndLyingSizes) {
  std::string bytes = writeSample();
  const auto edit = [&](std::string_view from, std::string_view to) {
    std::string copy = bytes;
    copy.replace(copy.find(from), from.size(), to);
    return refusal(copy);
  };
  EXPECT_THAT(edit("\"packing_version\":1", "\"packing_version\":9"), testing::HasSubstr("packing version 9"));
  EXPECT_THAT(edit("\"rows\":17", "\"rows\":99"), testing::HasSubstr("b has"));
  EXPECT_THAT(edit("\"name\":\"b\"", "\"name\":\"a\""), testing::HasSubstr("twice"));
  EXPECT_THAT(edit("CHORUSEN", "CHORUSEM"), testing::HasSubstr("not an engine"));
}

TEST_F(EngineFileTest, ALinearWithExpertsHasOneWeightForEach) {
  {
    const EngineTensor tensor = {
        .name = "e", .kind = EngineTensorKind::kLinear, .dtype = DType::kFloat16, .rows = 17, .cols = 5, .experts = 3};
    EngineFileWriter writer(dir_ / "r", {tensor}, weightPacker("cpu"));
    writer.commit();
  }
  const std::string bytes = readFile(dir_ / "r", 1 << 20);
  const auto tensors = parse(bytes);
  EXPECT_EQ(tensors[0].experts, 3);
  EXPECT_EQ(tensors[0].bytes, 3u * 320) << "two panels of five inputs, 32 bytes each";
  EXPECT_EQ(weightPacker("cpu").expertStride(DType::kFloat16, 3, 5), 192) << "160 bytes, rounded up to cache lines";
  const auto edit = [&](std::string_view to) {
    std::string copy = bytes;
    copy.replace(copy.find("\"experts\":3"), 11, to);
    return refusal(copy);
  };
  EXPECT_THAT(edit("\"experts\":7"), testing::HasSubstr("e has"));
  EXPECT_THAT(edit("\"experts\":0"), testing::HasSubstr("e has"));
}

TEST_F(EngineFileTest, AnUncommittedFileLeavesNothing) {
  {
    EngineFileWriter writer(dir_ / "r", {{.name = "a", .rows = 1, .cols = 1}}, weightPacker("cpu"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

}  // namespace
}  // namespace chorus
