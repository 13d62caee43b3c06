#include "formats/source_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "base/testing/error_of.h"
#include "formats/source_tensors.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Stored tensors with small whole numbers, which every floating-point type holds exactly. Their bytes are unaligned.
class Storage {
 public:
  TensorView store(DType dtype, std::vector<int64_t> shape, const std::vector<float>& values) {
    std::vector<std::byte>& bytes = memory_.emplace_back(values.size() * dtypeSize(dtype) + 1);
    std::vector<std::byte> aligned(values.size() * dtypeSize(dtype));
    if (dtype == DType::kInt8) {
      for (size_t i = 0; i < values.size(); ++i) aligned[i] = static_cast<std::byte>(static_cast<int8_t>(values[i]));
    } else if (dtype == DType::kFloat64) {
      const std::vector<double> doubles(values.begin(), values.end());
      std::ranges::copy(std::as_bytes(std::span(doubles)), aligned.begin());
    } else {
      convertElements(values.data(), DType::kFloat32, aligned.data(), dtype, values.size());
    }
    std::ranges::copy(aligned, bytes.begin() + 1);
    return {dtype, std::move(shape), std::span(bytes).subspan(1)};
  }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

std::vector<float> toFloats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / dtypeSize(dtype));
  if (dtype == DType::kInt8) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int8_t>(bytes[i]));
  } else {
    convertElements(bytes.data(), dtype, values.data(), DType::kFloat32, values.size());
  }
  return values;
}

std::vector<float> read(const SourceTensor& tensor, const Rectangle& part, bool transposed = false) {
  std::vector<std::byte> bytes(static_cast<size_t>(part.rows * part.cols) * dtypeSize(tensor.dtype()));
  if (transposed) {
    tensor.readTransposed(part, bytes.data());
  } else {
    tensor.read(part, bytes.data());
  }
  return toFloats(bytes, tensor.dtype());
}

// A plain matrix, the reference.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  std::vector<float> part(const Rectangle& r, bool transposed = false) const {
    std::vector<float> result;
    for (int64_t i = 0; i < (transposed ? r.cols : r.rows); ++i) {
      for (int64_t j = 0; j < (transposed ? r.rows : r.cols); ++j) {
        const int64_t row = r.row + (transposed ? j : i), col = r.col + (transposed ? i : j);
        result.push_back(values[static_cast<size_t>(row * cols + col)]);
      }
    }
    return result;
  }
};

class RandomCuts {
 public:
  explicit RandomCuts(uint64_t seed) : rng_(seed) {}

  int64_t number(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(rng_); }

  Matrix matrix() {
    Matrix m{.rows = number(1, 20), .cols = number(1, 20), .values = {}};
    for (int64_t i = 0; i < m.rows * m.cols; ++i) m.values.push_back(static_cast<float>(number(-100, 100)));
    return m;
  }
  DType dtype() { return std::vector{DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}[draw(4)]; }

  // Cuts the matrix into random rectangles, each of them a part of a larger stored tensor.
  void addRectangles(const Matrix& m, const Rectangle& whole, bool mixed, DType dtype, SourceTensor& tensor) {
    const bool by_rows = whole.rows > 1 && (whole.cols == 1 || draw(2) == 0);
    if ((whole.rows > 1 || whole.cols > 1) && draw(4) != 0) {
      Rectangle first = whole, second = whole;
      if (by_rows) {
        first.rows = number(1, whole.rows - 1);
        second.row += first.rows;
        second.rows -= first.rows;
      } else {
        first.cols = number(1, whole.cols - 1);
        second.col += first.cols;
        second.cols -= first.cols;
      }
      if (draw(2) == 0) std::swap(first, second);
      addRectangles(m, first, mixed, dtype, tensor);
      addRectangles(m, second, mixed, dtype, tensor);
      return;
    }
    const Rectangle place = {number(0, 3), number(0, 3), whole.rows, whole.cols};
    const int64_t rows = place.row + place.rows + number(0, 3), cols = place.col + place.cols + number(0, 3);
    std::vector<float> values(static_cast<size_t>(rows * cols), 99.0f);
    for (int64_t r = 0; r < whole.rows; ++r) {
      for (int64_t c = 0; c < whole.cols; ++c) {
        values[static_cast<size_t>((place.row + r) * cols + place.col + c)] =
            m.values[static_cast<size_t>((whole.row + r) * m.cols + whole.col + c)];
      }
    }
    const TensorView stored = storage_.store(mixed ? this->dtype() : dtype, {rows, cols}, values);
    tensor.addRectangle(stored, place, whole.row, whole.col);
  }
  // Cuts the flattened matrix into random ranges, each of them a part of a stored vector.
  void addRanges(const Matrix& m, bool mixed, DType dtype, SourceTensor& tensor) {
    const int64_t all = m.rows * m.cols;
    for (int64_t first = 0; first < all;) {
      const int64_t count = number(1, all - first), before = number(0, 5), after = number(0, 5);
      std::vector<float> values(static_cast<size_t>(before + count + after), 99.0f);
      std::copy_n(m.values.begin() + first, count, values.begin() + before);
      const TensorView stored = storage_.store(mixed ? this->dtype() : dtype, {before + count + after}, values);
      tensor.addRange(stored, before, count, first);
      first += count;
    }
  }
  Rectangle rectangle(int64_t rows, int64_t cols) {
    const int64_t row = number(0, rows - 1), col = number(0, cols - 1);
    return {row, col, number(1, rows - row), number(1, cols - col)};
  }
  size_t draw(size_t below) { return static_cast<size_t>(number(0, static_cast<int64_t>(below) - 1)); }

 private:
  std::mt19937_64 rng_;
  Storage storage_;
};

TEST(SourceTensorTest, RandomCutsReadLikeTheWholeMatrix) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    RandomCuts cuts(seed);
    const Matrix m = cuts.matrix();
    SourceTensor tensor(std::vector{m.rows, m.cols});
    const bool mixed = cuts.draw(3) == 0;
    const DType dtype = cuts.draw(4) == 0 ? DType::kInt8 : cuts.dtype();
    if (cuts.draw(2) == 0) {
      cuts.addRectangles(m, {0, 0, m.rows, m.cols}, mixed, dtype, tensor);
    } else {
      cuts.addRanges(m, mixed, dtype, tensor);
    }
    tensor.finish("t");
    if (!mixed) {
      EXPECT_EQ(tensor.dtype(), dtype);
    }
    for (int i = 0; i < 8; ++i) {
      const Rectangle part = cuts.rectangle(m.rows, m.cols);
      ASSERT_EQ(read(tensor, part), m.part(part));
      ASSERT_EQ(read(tensor, part, true), m.part(part, true));
      const auto stored = tensor.storedRows(part.row, part.rows);
      if (!stored.empty()) {
        EXPECT_EQ(toFloats({stored.begin(), stored.end()}, tensor.dtype()), m.part({part.row, 0, part.rows, m.cols}));
      }
    }
  }
}

TEST(SourceTensorTest, AWholeStoredTensorIsReadInPlace) {
  Storage storage;
  const TensorView view = storage.store(DType::kFloat32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const SourceTensor tensor = view;
  EXPECT_EQ(tensor.storedRows(0, 2).data(), view.bytes.data());
  EXPECT_EQ(tensor.storedRows(1, 1).data(), view.bytes.data() + 12);
  EXPECT_EQ(tensor.storedRows(1, 1).size(), 12u);
  const SourceTensor scalar = storage.store(DType::kFloat32, {}, {7});
  EXPECT_THAT(read(scalar, {0, 0, 1, 1}), ElementsAre(7));
  const SourceTensor empty = storage.store(DType::kFloat32, {0, 3}, {});
  EXPECT_EQ(empty.rows(), 0);
}

TEST(SourceTensorTest, RowsOfOnePieceAreReadInPlace) {
  Storage storage;
  const TensorView upper = storage.store(DType::kBFloat16, {2, 3}, {1, 2, 3, 4, 5, 6});
  const TensorView lower = storage.store(DType::kBFloat16, {1, 3}, {7, 8, 9});
  SourceTensor tensor(std::vector<int64_t>{3, 3});
  tensor.addWhole(lower, 2);
  tensor.addWhole(upper, 0);
  tensor.finish("t");
  EXPECT_EQ(tensor.storedRows(1, 1).data(), upper.bytes.data() + 6);
  EXPECT_EQ(tensor.storedRows(2, 1).data(), lower.bytes.data());
  EXPECT_TRUE(tensor.storedRows(1, 2).empty());
}

TEST(SourceTensorTest, APartOfTheFirstDimension) {
  Storage storage;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const SourceTensor experts = storage.store(DType::kFloat32, {2, 2, 3}, values);
  const SourceTensor second = experts.part(1);
  EXPECT_THAT(second.shape(), ElementsAre(2, 3));
  EXPECT_THAT(read(second, {0, 0, 2, 3}), ElementsAre(7, 8, 9, 10, 11, 12));
  SourceTensor ranges(std::vector<int64_t>{2, 2, 3});
  const TensorView flat = storage.store(DType::kFloat32, {12}, values);
  ranges.addRange(flat, 8, 4, 8);
  ranges.addRange(flat, 0, 8, 0);
  ranges.finish("t");
  EXPECT_THAT(read(ranges.part(1), {0, 0, 2, 3}), ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_THAT(read(ranges.part(0).part(1), {0, 0, 3, 1}), ElementsAre(4, 5, 6));
  EXPECT_THAT(read(ranges.part(1).part(0), {1, 0, 2, 1}), ElementsAre(8, 9));
}

TEST(SourceTensorTest, PiecesThatOverlapOrLeaveGapsAreRefused) {
  Storage storage;
  const TensorView row = storage.store(DType::kFloat32, {1, 4}, {1, 2, 3, 4});
  const auto finished = [&](const std::function<void(SourceTensor&)>& add) {
    return errorOf([&] {
      SourceTensor tensor(std::vector<int64_t>{2, 4});
      add(tensor);
      tensor.finish("name");
    });
  };
  EXPECT_EQ(finished([&](SourceTensor& t) {
              t.addWhole(row, 0);
              t.addWhole(row, 1);
            }),
            "");
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addWhole(row, 0); }), HasSubstr("'name'"));
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addWhole(row, 0); }), HasSubstr("4 of the 8 elements"));
  EXPECT_THAT(finished([&](SourceTensor& t) {
                t.addWhole(row, 0);
                t.addRectangle(row, {0, 0, 1, 1}, 0, 3);
                t.addRectangle(row, {0, 0, 1, 3}, 1, 0);
              }),
              HasSubstr("row 0 is in several pieces"));
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addRectangle(row, {0, 2, 1, 3}, 0, 0); }), HasSubstr("does not fit"));
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addWhole(row, 2); }), HasSubstr("does not fit"));
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addRange(row, 0, 4, 5); }), HasSubstr("does not fit"));
  EXPECT_THAT(finished([&](SourceTensor& t) { t.addRange(row, 1, 4, 0); }), HasSubstr("does not fit"));
  EXPECT_THAT(errorOf([] { SourceTensor(std::vector<int64_t>{INT64_MAX, 4}); }), HasSubstr("overflows"));
}

TEST(SourceTensorTest, OnlyFloatsMayBeMixed) {
  Storage storage;
  SourceTensor tensor(std::vector<int64_t>{2, 2});
  tensor.addWhole(storage.store(DType::kFloat16, {1, 2}, {1, 2}), 0);
  tensor.addWhole(storage.store(DType::kInt8, {1, 2}, {3, 4}), 1);
  EXPECT_THAT(errorOf([&] { tensor.finish("name"); }), HasSubstr("'name'"));
}

TEST(SourceTensorsTest, NamesAreSortedAndUnique) {
  Storage storage;
  SourceTensors tensors;
  tensors.add("b", storage.store(DType::kFloat32, {1}, {1}), "first.bin");
  tensors.add("a", storage.store(DType::kFloat32, {1}, {2}), "first.bin");
  EXPECT_THAT(tensors.names(), ElementsAre("a", "b"));
  EXPECT_EQ(tensors.fileOf("a"), "first.bin");
  EXPECT_EQ(tensors.find("c"), nullptr);
  EXPECT_THAT(errorOf([&] { tensors.add("a", storage.store(DType::kFloat32, {1}, {3}), "second.bin"); }),
              HasSubstr("second.bin: tensor 'a' is also in first.bin"));
}

}  // namespace
}  // namespace chorus
