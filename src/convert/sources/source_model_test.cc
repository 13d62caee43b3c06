#include "convert/sources/source_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::HasSubstr;

TensorView viewOf(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {DType::kFloat32, std::move(shape), std::as_bytes(std::span(values))};
}

TEST(HaveEqualValuesTest, ComparesEveryElement) {
  constexpr int64_t kRows = 3, kCols = 300'000;  // a row of more than the 1 MiB that is compared at once
  const std::vector<float> values(kRows * kCols, 1.0f);
  const TensorView whole = viewOf({kRows, kCols}, values);
  EXPECT_TRUE(haveEqualValues(whole, whole));
  for (const int64_t differing : {int64_t{0}, kCols - 1, kCols, kCols + (1 << 18), kRows * kCols - 1}) {
    std::vector<float> other = values;
    other[static_cast<size_t>(differing)] = 2.0f;
    EXPECT_FALSE(haveEqualValues(whole, viewOf({kRows, kCols}, other))) << differing;
  }
  EXPECT_FALSE(haveEqualValues(whole, viewOf({kCols, kRows}, values)));
  for (const int64_t rows : {int64_t{1}, int64_t{1} << 18, kRows * kCols}) {
    const TensorView column = viewOf({rows}, values);
    EXPECT_TRUE(haveEqualValues(column, column)) << rows;
  }
}

TEST(HaveEqualValuesTest, ATensorWithoutRowsTakesNoMemoryForItsColumns) {
  const TensorView empty = {DType::kFloat32, {0, int64_t{1} << 60}, {}};
  EXPECT_TRUE(haveEqualValues(empty, empty));
  const TensorView flat = {DType::kFloat32, {int64_t{1} << 60, 0}, {}};
  EXPECT_TRUE(haveEqualValues(flat, flat));
  EXPECT_FALSE(haveEqualValues(empty, flat));
}

class CheckSourcesTest : public testing::Test {
 protected:
  CheckSourcesTest() {
    model_.config.architecture = "A";
    model_.config.num_hidden_layers = 4;
    model_.table = {
        {.shape = {2}, .stage = Stage::kFirst, .sources = {{.name = "embed", .rows = 2}}},
        {.shape = {2}, .sources = {{.name = "{layer}.qk", .rows = 2, .in_source = {.total = 4}}}},
        {.shape = {2}, .sources = {{.name = "{layer}.qk", .rows = 2, .in_source = {.total = 4, .begin = 2}}}},
        {.shape = {2}, .sources = {{.name = "{layer}.{expert}.w", .rows = 2}}, .experts = 2}};
  }

  void add(const std::string& name, int64_t rows = 2) {
    model_.tensors.add(
        name, TensorView{DType::kFloat32, {rows}, std::as_bytes(std::span(values_).first(static_cast<size_t>(rows)))},
        "f");
  }
  void addAll() {
    add("embed");
    for (const char* layer : {"0", "1", "2", "3"}) {
      add(layer + std::string(".qk"), 4);
      for (const char* expert : {".0.w", ".1.w"}) add(layer + std::string(expert));
    }
  }
  std::string refusal() const {
    return errorOf([&] { checkSources(model_, std::vector<std::string>{"ignored.*"}, "files", "config.json"); });
  }

  SourceModel model_;

 private:
  std::vector<float> values_ = std::vector<float>(4);
};

TEST_F(CheckSourcesTest, NamesTensorsThatTheModelDoesNotHave) {
  addAll();
  EXPECT_EQ(refusal(), "");
  add("ignored.bias");
  EXPECT_EQ(refusal(), "");
  for (const char* other : {"4.qk", "0.2.w", "00.qk"}) add(other);
  EXPECT_THAT(refusal(), HasSubstr("tensors that A does not have: 0.2.w, 00.qk, 4.qk; the weights and config.json"));
}

TEST_F(CheckSourcesTest, CountsMissingTensorsOnce) {
  add("embed");
  add("1.qk", 4);
  add("3.1.w");
  EXPECT_EQ(refusal(),
            "files: Required but not provided tensors: 0.qk, 2.qk, 3.qk, 0.0.w, 0.1.w, 1.0.w, 1.1.w, 2.0.w and 2 more");
}

// The names of all experts would take 8 GB.
TEST_F(CheckSourcesTest, ExpertsThatNoFileHoldsAreNotListed) {
  addAll();
  model_.config.num_hidden_layers = 4096;
  model_.table.back().experts = 1 << 14;
  EXPECT_THAT(refusal(), HasSubstr("tensors: 4.qk, 5.qk, 6.qk, 7.qk, 8.qk, 9.qk, 10.qk, 11.qk and 67112940 more"));
}

TEST_F(CheckSourcesTest, ShapesAreThoseOfTheTable) {
  addAll();
  model_.table[2].sources[0].in_source.total = 6;
  EXPECT_EQ(refusal(), "f: tensor '0.qk' has shape [4], config.json asks for [6]");
}

}  // namespace
}  // namespace chorus
