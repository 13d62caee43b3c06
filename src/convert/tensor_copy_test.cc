#include "convert/tensor_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "base/testing/error_of.h"
#include "convert/quantise.h"
#include "formats/safetensors.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Axis = ShardRule::Axis;

// A model file with one tensor "conv" [4, 6] with the values 0 to 23, which is the transpose of a linear [6, 4].
class TensorCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tensor_copy.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    std::vector<float> values(24);
    std::iota(values.begin(), values.end(), 0.0f);
    SafetensorsWriter writer(dir_ / "model.safetensors", {{"conv", DType::kFloat32, {4, 6}}});
    writer.write("conv", 0, std::as_bytes(std::span(values)));
    writer.finish();
    config_.dtype = DType::kFloat32;
    config_.num_hidden_layers = 1;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  SourceTensors sources() const {
    SourceTensors tensors;
    tensors.addFile(openTensorFile(dir_ / "model.safetensors"));
    return tensors;
  }
  // The rank's copy of the tensor of row_.
  std::vector<float> copied(int32_t rank) {
    const WeightTable table = {row_};
    const std::vector<RankTensor> tensors = rankTensors(table, config_, rank);
    std::vector<std::byte> bytes;
    copyRankTensor(tensors.at(0), config_.mapping, rank, sources(), SourceFormat::kHuggingFace,
                   [&](uint64_t offset, std::span<const std::byte> piece) {
                     EXPECT_EQ(offset, bytes.size());
                     bytes.insert(bytes.end(), piece.begin(), piece.end());
                   });
    std::vector<float> values(bytes.size() / dtypeSize(config_.dtype));
    convertElements(bytes.data(), config_.dtype, values.data(), DType::kFloat32, values.size());
    return values;
  }

  std::filesystem::path dir_;
  ModelConfig config_;
  WeightRow row_ = {
      .name = "linear", .shape = {6, 4}, .stage = Stage::kFirst, .sources = {{"conv", 0, 6, {}, {.transposed = true}}}};
};

TEST_F(TensorCopyTest, ATransposedSourceIsTurnedBeforeItIsCut) {
  const std::vector<float> whole = copied(0);
  ASSERT_EQ(whole.size(), 24u);
  EXPECT_THAT(std::vector<float>(whole.begin(), whole.begin() + 5), ElementsAre(0, 6, 12, 18, 1));
  config_.mapping.tp_size = 2;
  row_.shard.axis = Axis::kRows;
  EXPECT_THAT(copied(1), ElementsAre(3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23));
  row_.shard.axis = Axis::kColumns;
  EXPECT_THAT(copied(1), ElementsAre(12, 18, 13, 19, 14, 20, 15, 21, 16, 22, 17, 23));
}

TEST_F(TensorCopyTest, ValuesAreChangedInFloat32AndThenRounded) {
  row_.sources[0].transform = {.transposed = true, .scale = 0.5f, .add = 1.0f};
  EXPECT_EQ(copied(0)[1], 4.0f);
  config_.dtype = DType::kFloat16;
  row_.sources[0].transform = {.transposed = true, .scale = 1e4f};
  EXPECT_THAT(errorOf([&] { copied(0); }), HasSubstr("'conv' holds values beyond float16"));
}

TEST_F(TensorCopyTest, QuantisedRowsAreTransformedFirst) {
  row_.sources[0].transform.scale = 2.0f;
  const WeightTable table = {row_};
  RankTensor integers = rankTensors(table, config_, 0).at(0);
  integers.dtype = DType::kInt8;
  integers.role = TensorRole::kIntegers;
  integers.format = {DType::kInt8, 0, DType::kFloat32};
  std::vector<std::byte> bytes, scales;
  const auto into = [](std::vector<std::byte>& to) {
    return [&to](uint64_t, std::span<const std::byte> piece) { to.insert(to.end(), piece.begin(), piece.end()); };
  };
  quantiseRankTensor(integers, config_.mapping, 0, sources(), SourceFormat::kHuggingFace, into(bytes), into(scales));
  ASSERT_EQ(bytes.size(), 24u);
  // The last row: 2 * (5, 11, 17, 23).
  const float scale = loadAsFloat(scales.data(), DType::kFloat32, 5);
  EXPECT_EQ(scale, 46.0f / 128);
  EXPECT_NEAR(static_cast<float>(static_cast<int8_t>(bytes[20])) * scale, 10, scale);
}

// q and k of two heads with three rows each, as int4.
TEST(StoredSliceTest, PairsOfInt4RowsStayTogether) {
  const WeightRow row = {.name = "qk", .shape = {13, 8}, .shard = {.axis = Axis::kRows, .parts = {6, 6, 1}}};
  const RankTensor tensor = {.name = "qk",
                             .shape = {6, 8},
                             .dtype = DType::kInt8,
                             .row = &row,
                             .layer = 0,
                             .role = TensorRole::kIntegers,
                             .format = {DType::kInt4, 4, DType::kFloat32}};
  const auto halved = [&](const std::vector<RowRun>& runs) {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (const RowRun& run : storedSlice(tensor, {.runs = runs, .rows = 8, .col_begin = 4, .cols = 4}).runs) {
      pairs.emplace_back(run.begin, run.rows);
    }
    return pairs;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(halved({{0, 3}, {3, 3}, {8, 2}}), (Pairs{{0, 3}, {4, 1}})) << "runs that continue each other";
  EXPECT_EQ(halved({{10, 3}, {-1, 3}}), (Pairs{{5, 2}, {-1, 1}})) << "the last row is in a pair with padding";
  EXPECT_EQ(halved({{12, 1}, {-1, 1}}), (Pairs{{6, 1}}));
  EXPECT_THAT(errorOf([&] { halved({{3, 3}, {9, 3}}); }), HasSubstr("pairs of rows, which these ranks would separate"));
  EXPECT_THAT(errorOf([&] { halved({{0, 2}, {3, 2}}); }), HasSubstr("qk: int4"));

  RankTensor scales = tensor;
  scales.role = TensorRole::kScales;
  const TensorSlice grouped = storedSlice(scales, {.runs = {{0, 3}}, .rows = 3, .col_begin = 4, .cols = 4});
  EXPECT_EQ(grouped.col_begin, 1);
  EXPECT_EQ(grouped.cols, 1);
  EXPECT_EQ(storedExtent(scales).cols, 2);
  EXPECT_EQ(storedExtent(tensor).rows, 7);
}

}  // namespace
}  // namespace chorus
