#include <cmath>
#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using RowSquaresTest = kernel_test::EveryVariant;

TEST_P(RowSquaresTest, MatchesDoublePrecision) {
  Values values;
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    const auto context = backend.createContext();
    for (const int64_t rows : {0, 1, 5, 40}) {
      for (const int64_t cols : {1, 15, 16, 17, 1030}) {
        const int64_t stride = cols + 3;
        const auto x = values.reals((rows + 1) * stride);
        const auto bias = values.reals(cols);
        for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
          std::vector<float> squares(static_cast<size_t>(2 * rows + 1), -1.0f);
          backend.rowSquares(
              {.x = {x.data(), rows, cols, stride}, .bias = added, .squares = squares.data(), .stride = 2}, *context,
              {});
          for (int64_t r = 0; r < rows; ++r) {
            double expected = 0;
            for (int64_t c = 0; c < cols; ++c) {
              const float sum = x[static_cast<size_t>(r * stride + c)] + (added == nullptr ? 0.0f : added[c]);
              expected += double{sum} * sum;
            }
            const double tolerance = std::numeric_limits<float>::epsilon() * static_cast<double>(cols) * expected;
            ASSERT_NEAR(squares[static_cast<size_t>(2 * r)], expected, tolerance) << rows << " x " << cols;
            ASSERT_EQ(squares[static_cast<size_t>(2 * r + 1)], -1.0f);
          }
        }
      }
    }
  }
}

CHORUS_FOR_EVERY_VARIANT(RowSquares, RowSquaresTest);
}  // namespace
}  // namespace chorus
