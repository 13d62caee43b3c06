#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using LayerNormTest = kernel_test::EveryVariant;

struct Call {
  int64_t rows, cols;
  std::vector<float> residual, delta, bias, weight, norm_bias, y;

  Call(Values& values, int64_t r, int64_t c)
      : rows(r),
        cols(c),
        residual(values.reals(r * c)),
        delta(values.reals(r * c)),
        bias(values.reals(c)),
        weight(values.reals(c)),
        norm_bias(values.reals(c)),
        y(static_cast<size_t>(r * c)) {}
  LayerNormArgs args(bool with_delta, bool with_bias, bool with_y) {
    LayerNormArgs a;
    a.residual = kernel_test::view(residual, rows, cols);
    if (with_delta) a.delta = kernel_test::view(delta, rows, cols);
    if (with_bias) a.bias = bias.data();
    a.delta_scale = 0.22f;
    a.weight = weight.data();
    a.norm_bias = norm_bias.data();
    if (with_y) a.y = kernel_test::view(y, rows, cols);
    return a;
  }
};

// Expected result: each operation of the residual sum is rounded to float32; the norm is in double precision. Fills
// `tolerance` for y: errors are relative to the largest element of a row, and to the elements themselves.
void exactly(LayerNormArgs args, std::vector<float>& tolerance) {
  const auto cols = static_cast<double>(args.residual.cols);
  for (int64_t r = 0; r < args.residual.rows; ++r) {
    float* residual = args.residual.row(r);
    double sum = 0, squares = 0, largest = 0;
    for (int64_t c = 0; c < args.residual.cols; ++c) {
      float added = args.delta.data != nullptr ? args.delta.row(r)[c] : 0;
      if (args.bias != nullptr) added = args.delta.data != nullptr ? added + args.bias[c] : args.bias[c];
      if (args.delta.data != nullptr || args.bias != nullptr) residual[c] += args.delta_scale * added;
      sum += double{residual[c]};
      largest = std::max(largest, std::abs(double{residual[c]}));
    }
    const double mean = sum / cols;
    for (int64_t c = 0; c < args.residual.cols; ++c) squares += (residual[c] - mean) * (residual[c] - mean);
    const double deviation = std::sqrt(squares / cols + double{args.epsilon});
    const double epsilon = std::numeric_limits<float>::epsilon() * (cols + 8);
    for (int64_t c = 0; args.y.data != nullptr && c < args.residual.cols; ++c) {
      const double scaled = (residual[c] - mean) / deviation * args.weight[c];
      args.y.row(r)[c] = static_cast<float>(scaled + args.norm_bias[c]);
      tolerance.push_back(
          static_cast<float>(epsilon * (std::abs(scaled) + largest / deviation) + std::abs(args.norm_bias[c]) * 1e-6));
    }
  }
}

TEST_P(LayerNormTest, MatchesDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  for (const int64_t rows : {0, 1, 2, 5, 33}) {
    for (const int64_t cols : {1, 3, 15, 16, 17, 64, 65, 100, 2048}) {
      for (int form = 0; form < 8; ++form) {
        Call call(values, rows, cols);
        Call expected = call;
        backend.layerNorm(call.args(form & 1, form & 2, form & 4), *context, {});
        std::vector<float> tolerance;
        exactly(expected.args(form & 1, form & 2, form & 4), tolerance);
        kernel_test::expectSameBits(call.residual.data(), expected.residual.data(), rows * cols, "residual");
        tolerance.resize(call.y.size());
        kernel_test::expectNear(call.y, expected.y, tolerance, fmt::format("{} x {} form {}", rows, cols, form));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The group of a row selects its weight and bias and changes no other bit, neither of this row nor of the other rows.
TEST_P(LayerNormTest, RowsOfAGroupTakeItsWeightAndBias) {
  Values values;
  const int64_t rows = 57, cols = 1030;
  std::vector<std::vector<float>> own, own_bias;
  for (int g = 0; g < 3; ++g) {
    own.push_back(values.reals(cols));
    own_bias.push_back(values.reals(cols));
  }
  const std::vector<std::vector<RowRange>> ranges = {{{0, 1}, {7, 9}, {30, 57}}, {{1, 2}, {9, 20}}, {{25, 26}}};
  std::vector<NormGroup> groups;
  for (size_t g = 0; g < 3; ++g) groups.push_back({ranges[g], own[g].data(), own_bias[g].data()});
  groups[1].bias = nullptr;    // a group without a bias of its own
  groups[2].weight = nullptr;  // or without a weight
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    const auto context = kernel_test::prepared(backend, {.groups = {.norm = groups}});
    Call call(values, rows, cols);
    std::vector<Call> with(4, call);  // all rows with one weight: the base's, then each group's
    LayerNormArgs args = call.args(true, true, true);
    args.groups = kernel_test::allOf(groups);
    backend.layerNorm(args, *context, {});
    for (size_t g = 0; g < with.size(); ++g) {
      args = with[g].args(true, true, true);
      if (g > 0 && groups[g - 1].weight != nullptr) args.weight = own[g - 1].data();
      if (g > 0 && groups[g - 1].bias != nullptr) args.norm_bias = own_bias[g - 1].data();
      backend.layerNorm(args, *context, {});
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

TEST_P(LayerNormTest, OutputMayAliasInputsAndMatesDoNotMatter) {
  Values values;
  Backend& backend = newBackend(3);
  const auto context = backend.createContext();
  Call many(values, 60, 1030);
  Call aliased = many;
  backend.layerNorm(many.args(true, true, true), *context, {});
  LayerNormArgs args = aliased.args(true, true, true);
  args.y = kernel_test::view(aliased.delta, 60, 1030);
  backend.layerNorm(args, *context, {});
  kernel_test::expectSameBits(aliased.delta.data(), many.y.data(), 60 * 1030, "aliased");
  Call in_place = many;
  args = in_place.args(false, true, true);
  args.y = args.residual;
  Call apart = many;
  backend.layerNorm(args, *context, {});
  backend.layerNorm(apart.args(false, true, true), *context, {});
  kernel_test::expectSameBits(in_place.residual.data(), apart.y.data(), 60 * 1030, "in place");
  Call alone = many;
  args = many.args(false, false, true);
  args.residual = {many.residual.data() + 7 * 1030, 1, 1030, 1030};
  args.y = {alone.y.data(), 1, 1030, 1030};
  backend.layerNorm(args, *context, {});
  kernel_test::expectSameBits(alone.y.data(), many.y.data() + 7 * 1030, 1030, "alone");
}

TEST_P(LayerNormTest, NaNStaysInItsRowAndEqualElementsGiveTheBias) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  const int64_t cols = 37;
  Call call(values, 3, cols);
  std::fill_n(call.residual.begin(), cols, 3.0f);
  call.residual[static_cast<size_t>(cols + 36)] = std::numeric_limits<float>::quiet_NaN();
  backend.layerNorm(call.args(false, false, true), *context, {});
  for (int64_t c = 0; c < cols; ++c) {
    const auto at = static_cast<size_t>(c);
    EXPECT_NEAR(call.y[at], call.norm_bias[at], 1e-3) << c;
    EXPECT_TRUE(std::isnan(call.y[at + cols])) << c;
    EXPECT_TRUE(std::isfinite(call.y[at + 2 * cols])) << c;
  }
}

CHORUS_FOR_EVERY_VARIANT(LayerNorm, LayerNormTest);
}  // namespace
}  // namespace chorus
