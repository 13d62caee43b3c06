#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using ScaleTest = kernel_test::EveryVariant;

TEST_P(ScaleTest, MultipliesTheMatrixAndNothingElse) {
  Values values;
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    const auto context = backend.createContext();
    for (const int64_t rows : {0, 1, 5, 40}) {
      for (const int64_t cols : {1, 15, 16, 17, 1030}) {
        const int64_t stride = cols + 3;
        auto x = values.reals((rows + 1) * stride);
        auto expected = x;
        for (int64_t i = 0; i < rows * stride; ++i) {
          if (i % stride < cols) expected[static_cast<size_t>(i)] *= 0.3f;
        }
        backend.scale({.x = {x.data(), rows, cols, stride}, .factor = 0.3f}, *context, {});
        kernel_test::expectSameBits(x.data(), expected.data(), std::ssize(x), fmt::format("{} x {}", rows, cols));
      }
    }
  }
}

CHORUS_FOR_EVERY_VARIANT(Scale, ScaleTest);
}  // namespace
}  // namespace chorus
