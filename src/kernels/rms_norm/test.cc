#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using RmsNormTest = kernel_test::EveryVariant;

struct Call {
  int64_t rows, cols;
  std::vector<float> residual, delta, bias, weight, y;
  float delta_scale = 1.0f;

  Call(Values& values, int64_t r, int64_t c)
      : rows(r),
        cols(c),
        residual(values.reals(r * c)),
        delta(values.reals(r * c)),
        bias(values.reals(c)),
        weight(values.reals(c)),
        y(static_cast<size_t>(r * c)) {}
  RmsNormArgs args(bool with_delta, bool with_bias, bool with_y) {
    RmsNormArgs a;
    a.residual = kernel_test::view(residual, rows, cols);
    if (with_delta) a.delta = kernel_test::view(delta, rows, cols);
    if (with_bias) a.bias = bias.data();
    a.delta_scale = delta_scale;
    a.weight = weight.data();
    if (with_y) a.y = kernel_test::view(y, rows, cols);
    return a;
  }
};

// Expected result: each addition of the residual sum is rounded to float32; the norm is in double precision.
void exactly(RmsNormArgs args) {
  for (int64_t r = 0; r < args.residual.rows; ++r) {
    float* residual = args.residual.row(r);
    double sum = 0;
    for (int64_t c = 0; c < args.residual.cols; ++c) {
      if (args.delta.data != nullptr) {
        const float delta = args.delta.row(r)[c];
        residual[c] += args.delta_scale * (args.bias == nullptr ? delta : delta + args.bias[c]);
      } else if (args.bias != nullptr) {
        residual[c] += args.delta_scale * args.bias[c];
      }
      sum += double{residual[c]} * residual[c];
    }
    const double rms = std::sqrt(sum / static_cast<double>(args.residual.cols) + double{args.epsilon});
    for (int64_t c = 0; args.y.data != nullptr && c < args.residual.cols; ++c) {
      args.y.row(r)[c] = static_cast<float>(residual[c] / rms * args.weight[c]);
    }
  }
}

TEST_P(RmsNormTest, MatchesDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  for (const int64_t rows : {0, 1, 2, 5, 33}) {
    for (const int64_t cols : {1, 3, 15, 16, 17, 64, 65, 100, 2048}) {
      for (int form = 0; form < 16; ++form) {
        Call call(values, rows, cols);
        if (form & 8) call.delta_scale = 0.22f;
        Call expected = call;
        backend.rmsNorm(call.args(form & 1, form & 2, form & 4), *context, {});
        exactly(expected.args(form & 1, form & 2, form & 4));
        kernel_test::expectSameBits(call.residual.data(), expected.residual.data(), rows * cols, "residual");
        std::vector<float> tolerance;
        const auto roundings = static_cast<float>(cols + 8);
        for (const float y : expected.y) {
          tolerance.push_back(std::abs(y) * roundings * std::numeric_limits<float>::epsilon());
        }
        kernel_test::expectNear(call.y, expected.y, tolerance, fmt::format("{} x {} form {}", rows, cols, form));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The group of a row selects its weight and changes no other bit, neither of this row nor of the other rows.
TEST_P(RmsNormTest, RowsOfAGroupTakeItsWeight) {
  Values values;
  const int64_t rows = 57, cols = 1030;
  std::vector<std::vector<float>> own;
  for (int g = 0; g < 3; ++g) own.push_back(values.reals(cols));
  const std::vector<std::vector<RowRange>> ranges = {{{0, 1}, {7, 9}, {30, 57}}, {{1, 2}, {9, 20}}, {{25, 26}}};
  std::vector<NormGroup> groups;
  for (size_t g = 0; g < 3; ++g) groups.push_back({ranges[g], own[g].data()});
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    const auto context = kernel_test::prepared(backend, {.groups = {.norm = groups}});
    Call call(values, rows, cols);
    std::vector<Call> with(4, call);  // all rows with one weight: the base's, then each group's
    RmsNormArgs args = call.args(true, true, true);
    args.groups = kernel_test::allOf(groups);
    backend.rmsNorm(args, *context, {});
    for (size_t g = 0; g < with.size(); ++g) {
      args = with[g].args(true, true, true);
      if (g > 0) args.weight = own[g - 1].data();
      backend.rmsNorm(args, *context, {});
    }
    for (int64_t r = 0; r < rows; ++r) {
      size_t expected = 0;
      for (size_t g = 0; g < 3; ++g) {
        for (const RowRange& range : ranges[g]) expected = r >= range.begin && r < range.end ? g + 1 : expected;
      }
      kernel_test::expectSameBits(call.y.data() + r * cols, with[expected].y.data() + r * cols, cols,
                                  fmt::format("row {} of group {}", r, expected));
    }
    kernel_test::expectSameBits(call.residual.data(), with[0].residual.data(), rows * cols, "residual");
  }
}

TEST_P(RmsNormTest, OutputMayAliasInputsAndMatesDoNotMatter) {
  Values values;
  Backend& backend = newBackend(3);
  const auto context = backend.createContext();
  Call many(values, 60, 1030);
  Call aliased = many;
  backend.rmsNorm(many.args(true, true, true), *context, {});
  RmsNormArgs args = aliased.args(true, true, true);
  args.y = kernel_test::view(aliased.delta, 60, 1030);
  backend.rmsNorm(args, *context, {});
  kernel_test::expectSameBits(aliased.delta.data(), many.y.data(), 60 * 1030, "aliased");
  Call in_place = many;
  args = in_place.args(false, true, true);
  args.y = args.residual;
  Call apart = many;
  backend.rmsNorm(args, *context, {});
  backend.rmsNorm(apart.args(false, true, true), *context, {});
  kernel_test::expectSameBits(in_place.residual.data(), apart.y.data(), 60 * 1030, "in place");
  Call alone = many;
  args = many.args(false, false, true);
  args.residual = {many.residual.data() + 7 * 1030, 1, 1030, 1030};
  args.y = {alone.y.data(), 1, 1030, 1030};
  backend.rmsNorm(args, *context, {});
  kernel_test::expectSameBits(alone.y.data(), many.y.data() + 7 * 1030, 1030, "alone");
}

TEST_P(RmsNormTest, NaNStaysInItsRowAndDenormalsAreNumbers) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  const int64_t cols = 37;
  Call call(values, 3, cols);
  for (int64_t c = 0; c < cols; ++c) call.residual[static_cast<size_t>(c)] *= 1e-39f;
  call.residual[static_cast<size_t>(cols + 36)] = std::numeric_limits<float>::quiet_NaN();
  backend.rmsNorm(call.args(false, false, true), *context, {});
  for (int64_t c = 0; c < cols; ++c) {
    const auto at = static_cast<size_t>(c);
    // The mean square is negligible beside epsilon.
    const double expected = call.residual[at] / std::sqrt(1e-5) * call.weight[at];
    EXPECT_NEAR(call.y[at], expected, 1e-5 * std::abs(expected) + 1e-44) << c;
    EXPECT_TRUE(std::isnan(call.y[at + cols])) << c;
    EXPECT_TRUE(std::isfinite(call.y[at + 2 * cols])) << c;
  }
}

CHORUS_FOR_EVERY_VARIANT(RmsNorm, RmsNormTest);
}  // namespace
}  // namespace chorus
