#include "checkpoint/source_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace chorus {
namespace {

using testing::ElementsAre;

// [3, 4], values 0 to 11 row by row.
class SourceValuesTest : public testing::Test {
 protected:
  std::vector<float> gather(const SourceTransform& transform, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    std::vector<float> out(static_cast<size_t>(rows * cols));
    gatherSource(tensor_, transform, row, rows, col, cols, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }

  std::array<float, 12> values_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  TensorView tensor_{DType::kFloat32, {3, 4}, std::as_bytes(std::span(values_))};
};

TEST_F(SourceValuesTest, RowsAndColumnsOfAMatrix) {
  EXPECT_EQ(sourceColumns(tensor_, {}), 4);
  EXPECT_THAT(gather({}, 1, 2, 0, 4), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(gather({}, 1, 2, 2, 1), ElementsAre(6, 10));
}

TEST_F(SourceValuesTest, RowsAndColumnsOfItsTranspose) {
  const SourceTransform transposed = {.transposed = true};
  EXPECT_EQ(sourceColumns(tensor_, transposed), 3);
  EXPECT_THAT(gather(transposed, 2, 2, 0, 3), ElementsAre(2, 6, 10, 3, 7, 11));
  EXPECT_THAT(gather(transposed, 0, 3, 1, 1), ElementsAre(4, 5, 6));
}

TEST_F(SourceValuesTest, AVectorIsOneColumn) {
  tensor_.shape = {12};
  EXPECT_EQ(sourceColumns(tensor_, {}), 1);
  EXPECT_THAT(gather({}, 5, 3, 0, 1), ElementsAre(5, 6, 7));
}

TEST_F(SourceValuesTest, ValuesAreScaledAndThenAddedTo) {
  changeValues({.scale = 2, .add = 1}, std::span(values_).first(2));
  EXPECT_THAT(std::span(values_).first(3), ElementsAre(1, 3, 2));
}

}  // namespace
}  // namespace chorus
