#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using ActivationTest = kernel_test::EveryVariant;

constexpr ActivationKind kKinds[] = {ActivationKind::kSilu, ActivationKind::kGelu,        ActivationKind::kGeluTanh,
                                     ActivationKind::kRelu, ActivationKind::kReluSquared, ActivationKind::kTanh};

// A gate of 1 makes the gated activation, whose accuracy its own test compares with double precision, an activation.
TEST_P(ActivationTest, IsTheGatedActivationWithAGateOfOne) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  for (const ActivationKind kind : kKinds) {
    for (const int64_t cols : {1, 3, 15, 16, 17, 100, 1023, 1024, 1025, 3000}) {
      for (const bool with_bias : {false, true}) {
        const int64_t rows = cols < 200 ? 5 : 2;
        auto x = values.reals(rows * cols, -30, 30);
        auto bias = values.reals(cols);
        std::vector<float> fc_gate, gated(x.size());
        for (int64_t r = 0; r < rows; ++r) {
          fc_gate.insert(fc_gate.end(), x.begin() + r * cols, x.begin() + (r + 1) * cols);
          fc_gate.insert(fc_gate.end(), static_cast<size_t>(cols), 1.0f);
        }
        backend.activation({kernel_test::view(x, rows, cols), with_bias ? bias.data() : nullptr, kind}, *context, {});
        bias.resize(static_cast<size_t>(2 * cols));
        backend.gatedActivation({kernel_test::view(fc_gate, rows, 2 * cols), with_bias ? bias.data() : nullptr, kind,
                                 kernel_test::view(gated, rows, cols)},
                                *context, {});
        kernel_test::expectSameBits(x.data(), gated.data(), rows * cols,
                                    fmt::format("kind {} cols {}", static_cast<int>(kind), cols));
      }
    }
  }
}

TEST_P(ActivationTest, ARowHasTheBitsOfTheRowAlone) {
  Values values;
  Backend& backend = newBackend(3);
  const auto context = backend.createContext();
  const int64_t rows = 40, cols = 1500;
  const auto in = values.reals(rows * cols);
  const auto bias = values.reals(cols);
  for (const ActivationKind kind : kKinds) {
    auto many = in;
    std::vector<float> alone(in.begin() + 9 * cols, in.begin() + 10 * cols);
    backend.activation({kernel_test::view(many, rows, cols), bias.data(), kind}, *context, {});
    backend.activation({kernel_test::view(alone, 1, cols), bias.data(), kind}, *context, {});
    kernel_test::expectSameBits(alone.data(), many.data() + 9 * cols, cols, "alone");
  }
}

// The MLP's buffer may be wider than the activated columns.
TEST_P(ActivationTest, ColumnsPastTheMatrixStayUnchanged) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  auto x = values.reals(3 * 30);
  const auto before = x;
  backend.activation({{x.data(), 2, 19, 30}, nullptr, ActivationKind::kRelu}, *context, {});
  for (size_t i = 0; i < x.size(); ++i) {
    const bool inside = i < 60 && i % 30 < 19;
    EXPECT_EQ(x[i], inside ? std::max(before[i], 0.0f) : before[i]) << i;
  }
}

CHORUS_FOR_EVERY_VARIANT(Activation, ActivationTest);
}  // namespace
}  // namespace chorus
