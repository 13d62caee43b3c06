#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using GatedActivationTest = kernel_test::EveryVariant;

double exactActivation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return 0;
}

constexpr ActivationKind kKinds[] = {ActivationKind::kSilu, ActivationKind::kGelu,        ActivationKind::kGeluTanh,
                                     ActivationKind::kRelu, ActivationKind::kReluSquared, ActivationKind::kTanh};

// Silu is within 6 ulp over the whole range. The gelus lose accuracy in 1 + erf and in the exponent of the cubic; this
// error is relative to |x|.
TEST_P(GatedActivationTest, MatchesDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  const float epsilon = std::numeric_limits<float>::epsilon();
  for (const ActivationKind kind : kKinds) {
    for (const int64_t cols : {1, 3, 15, 16, 17, 100, 1023, 1024, 1025, 3000}) {
      const int64_t rows = cols < 200 ? 5 : 2;
      auto in = values.reals(rows * 2 * cols, -30, 30);
      in[0] = 0;
      if (cols > 16) in[1] = -100, in[2] = 100, in[3] = -87.5f, in[4] = 88.8f, in[5] = -1e30f, in[6] = 1e30f;
      if (cols > 16 && kind == ActivationKind::kReluSquared) in[6] = 1e18f;  // its square is finite
      std::vector<float> out(static_cast<size_t>(rows * cols));
      backend.gatedActivation(
          {kernel_test::view(in, rows, 2 * cols), nullptr, kind, kernel_test::view(out, rows, cols)}, *context, {});
      std::vector<float> expected, tolerance;
      for (int64_t i = 0; i < rows * cols; ++i) {
        const double x = in[static_cast<size_t>(i / cols * 2 * cols + i % cols)];
        const double gate = in[static_cast<size_t>(i / cols * 2 * cols + cols + i % cols)];
        const double exact = exactActivation(kind, x);
        const double scale =
            kind == ActivationKind::kSilu || kind == ActivationKind::kRelu || kind == ActivationKind::kReluSquared
                ? std::abs(exact)
                : std::max(std::abs(exact) * 8, std::min(std::abs(x), 1.0));
        expected.push_back(static_cast<float>(exact * gate));
        tolerance.push_back(static_cast<float>((6 * epsilon * scale + 1e-36) * std::abs(gate)));
      }
      kernel_test::expectNear(out, expected, tolerance, fmt::format("kind {} cols {}", static_cast<int>(kind), cols));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(GatedActivationTest, BiasAndMatesGiveTheBitsOfARowAlone) {
  Values values;
  Backend& backend = newBackend(3);
  const auto context = backend.createContext();
  const int64_t rows = 40, cols = 1500;
  auto in = values.reals(rows * 2 * cols);
  const auto bias = values.reals(2 * cols);
  auto biased = in;
  for (size_t i = 0; i < in.size(); ++i) biased[i] += bias[i % bias.size()];
  std::vector<float> many(static_cast<size_t>(rows * cols)), sum(many.size()), alone(static_cast<size_t>(cols));
  for (const ActivationKind kind : kKinds) {
    backend.gatedActivation(
        {kernel_test::view(in, rows, 2 * cols), bias.data(), kind, kernel_test::view(many, rows, cols)}, *context, {});
    backend.gatedActivation(
        {kernel_test::view(biased, rows, 2 * cols), nullptr, kind, kernel_test::view(sum, rows, cols)}, *context, {});
    kernel_test::expectSameBits(many.data(), sum.data(), rows * cols, "bias");
    backend.gatedActivation(
        {{in.data() + 9 * 2 * cols, 1, 2 * cols, 2 * cols}, bias.data(), kind, kernel_test::view(alone, 1, cols)},
        *context, {});
    kernel_test::expectSameBits(alone.data(), many.data() + 9 * cols, cols, "alone");
  }
}

TEST_P(GatedActivationTest, SwappedHalvesGiveTheSameBits) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  const int64_t rows = 3, cols = 1100;
  auto in = values.reals(rows * 2 * cols), swapped = in;
  auto bias = values.reals(2 * cols), swapped_bias = bias;
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = swapped.begin() + r * 2 * cols;
    std::rotate(row, row + cols, row + 2 * cols);
  }
  std::rotate(swapped_bias.begin(), swapped_bias.begin() + cols, swapped_bias.end());
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (float* const added : {static_cast<float*>(nullptr), bias.data()}) {
    backend.gatedActivation(
        {.fc_gate = kernel_test::view(in, rows, 2 * cols), .bias = added, .out = kernel_test::view(out, rows, cols)},
        *context, {});
    // Computes it in place, as a mixture of experts does.
    auto work = swapped;
    const Matrix all = kernel_test::view(work, rows, 2 * cols);
    backend.gatedActivation({.fc_gate = all,
                             .bias = added == nullptr ? nullptr : swapped_bias.data(),
                             .out = {all.data, rows, cols, all.stride},
                             .activates_second = true},
                            *context, {});
    for (int64_t r = 0; r < rows; ++r) {
      kernel_test::expectSameBits(work.data() + r * 2 * cols, out.data() + r * cols, cols, "swapped halves");
    }
  }
}

TEST_P(GatedActivationTest, NaNStaysNaNAndInfinityIsTheLimit) {
  Backend& backend = newBackend(1);
  const auto context = backend.createContext();
  const int64_t cols = 19;
  for (const ActivationKind kind : kKinds) {
    std::vector<float> in(2 * cols, 1.0f), out(cols);
    in[2] = in[17] = std::numeric_limits<float>::quiet_NaN();
    in[3] = in[18] = std::numeric_limits<float>::infinity();
    in[cols + 5] = std::numeric_limits<float>::quiet_NaN();
    backend.gatedActivation({kernel_test::view(in, 1, 2 * cols), nullptr, kind, kernel_test::view(out, 1, cols)},
                            *context, {});
    EXPECT_TRUE(std::isnan(out[5])) << "gate, kind " << static_cast<int>(kind);
    for (const size_t at : {2, 17}) {
      if (kind == ActivationKind::kRelu || kind == ActivationKind::kReluSquared)
        continue;  // the maximum with NaN may be either operand
      EXPECT_TRUE(std::isnan(out[at])) << at << ", kind " << static_cast<int>(kind);
    }
    const float limit = kind == ActivationKind::kTanh ? 1.0f : std::numeric_limits<float>::infinity();
    for (const size_t at : {3, 18}) EXPECT_EQ(out[at], limit) << at;
    EXPECT_TRUE(std::isfinite(out[0]) && std::isfinite(out[16]));
  }
}

TEST_P(GatedActivationTest, NoRowsTouchNothing) {
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  std::vector<float> in(20, 1.0f), out(10, -5.0f);
  backend.gatedActivation({kernel_test::view(in, 0, 20), nullptr, ActivationKind::kSilu, kernel_test::view(out, 0, 10)},
                          *context, {});
  EXPECT_EQ(out, std::vector<float>(10, -5.0f));
}

CHORUS_FOR_EVERY_VARIANT(GatedActivation, GatedActivationTest);
}  // namespace
}  // namespace chorus
