// Tests that every kernel of fixed-point products gives the bits of plain integer arithmetic.
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/fixed_reference.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::FixedRow;
using kernel_test::Values;

// A quantised weight, packed and in plain form.
struct Integers {
  int64_t out, in;
  std::vector<int> integers;  // [out, in]
  std::vector<float> scales;  // [out, in], rounded to the format's type
  AlignedBuffer memory;
  PackedWeight view;

  Integers(Values& values, const WeightFormat& format, int64_t features, int64_t inputs, bool extreme)
      : out(features), in(inputs), memory(static_cast<size_t>(packedBytes(format, out, in))) {
    const bool nibbles = format.dtype == DType::kInt4;
    const int most = nibbles ? 7 : 127;
    for (int64_t i = 0; i < out * in; ++i) {
      integers.push_back(
          static_cast<int>(extreme ? (values.integer(0, 1) == 0 ? most : -most - 1) : values.integer(-most - 1, most)));
    }
    std::vector<uint8_t> rows(static_cast<size_t>((nibbles ? (out + 1) / 2 : out) * in));
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const auto bits = static_cast<uint8_t>(integers[static_cast<size_t>(o * in + i)]);
        uint8_t& at = rows[static_cast<size_t>((nibbles ? o / 2 : o) * in + i)];
        at = !nibbles ? bits : static_cast<uint8_t>(o % 2 == 0 ? bits & 15 : at | bits << 4);
      }
    }
    const int64_t groups = format.group > 0 ? (in + format.group - 1) / format.group : 1;
    const auto given = kernel_test::asDtype(values.reals(out * groups, 0.005f, 0.02f), format.scale_dtype);
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const int64_t group = format.group > 0 ? i / format.group : 0;
        scales.push_back(loadAsFloat(given.data(), format.scale_dtype, static_cast<size_t>(o * groups + group)));
      }
    }
    packRows(rows.data(), format, out, in, 0, memory.data());
    packScales(given.data(), format.scale_dtype, format, out, in, 0, memory.data());
    view = {memory.data(), format, out, in};
  }
  std::vector<float> times(const std::vector<float>& x) const {
    std::vector<float> y;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(in)) {
      const FixedRow fixed(x.data() + row, in, view.format());
      for (int64_t o = 0; o < out; ++o) y.push_back(fixed.dot(&integers[o * in], &scales[o * in], 0.0f));
    }
    return y;
  }
};

// Rows that alternate between random values and five edge cases.
std::vector<float> rowsOfEveryKind(Values& values, int64_t rows, int64_t in, int levels) {
  auto x = values.reals(rows * in);
  for (int64_t r = 0; r < rows; ++r) {
    const std::span<float> row(x.data() + r * in, static_cast<size_t>(in));
    switch (r % 6) {
      case 1:  // only the largest values of both signs: every digit is at its limit
        for (float& value : row) value = value < 0 ? -3.0f : 3.0f;
        break;
      case 2:
        std::fill(row.begin(), row.end(), 0.0f);
        break;
      case 3:  // an outlier
        row[static_cast<size_t>(values.integer(0, in - 1))] = values.integer(0, 1) == 0 ? 1e4f : -1e30f;
        break;
      case 4:  // near or below kFixedLeast, and denormal
        for (float& value : row) value *= values.integer(0, 1) == 0 ? 1e-33f : 1e-38f;
        break;
      case 5:  // halfway between two levels: rounded to even
        row[0] = static_cast<float>(levels);
        for (size_t i = 1; i < row.size(); ++i) row[i] = static_cast<float>(values.integer(-levels, levels - 1)) + 0.5f;
        break;
      default:
        break;
    }
  }
  return x;
}

std::vector<float> run(Backend& backend, std::vector<float> x, const Integers& weight) {
  const auto rows = static_cast<int64_t>(x.size()) / weight.in;
  std::vector<float> y(static_cast<size_t>(rows * weight.out));
  const auto context = backend.createContext();
  backend.linear(
      {.x = kernel_test::view(x, rows, weight.in), .weight = weight.view, .y = kernel_test::view(y, rows, weight.out)},
      *context, {});
  return y;
}

class FixedPointTest : public testing::TestWithParam<WeightFormat> {
 protected:
  static int levels() { return fixedLevels(fixedDigits(GetParam())); }
  // Instruction sets on which the linear takes this format's inputs in fixed point.
  static std::vector<Isa> isas() {
    std::vector<Isa> some;
    for (const Isa isa : availableIsas()) {
      if (linearInputRun(isa, GetParam()) > 0) some.push_back(isa);
    }
    return some;
  }
};

TEST_P(FixedPointTest, EveryKernelHasTheBitsOfPlainIntegers) {
  Values values;
  for (const int64_t in : {1, 3, 4, 5, 8, 31, 33, 63, 100, 127, 128, 129, 200, 1024, 1030, 2100}) {
    const Integers weight(values, GetParam(), in > 1000 ? 35 : 50, in, in % 2 == 0);
    for (const int64_t rows : {1, 2, 6, 12, 13, 31, in > 1000 ? 80 : 40}) {
      const auto x = rowsOfEveryKind(values, rows, in, levels());
      const auto expected = weight.times(x);
      for (const Isa isa : isas()) {
        const auto backend = createBackend({.name = "cpu", .threads = 2, .isa = isa});
        const auto y = run(*backend, x, weight);
        kernel_test::expectSameBits(y.data(), expected.data(), std::ssize(y),
                                    fmt::format("{} {} rows in {}", isaName(isa), rows, in));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(FixedPointTest, NonFiniteInputsChangeOnlyTheirRow) {
  Values values;
  const int64_t in = 300, rows = 14;
  const Integers weight(values, GetParam(), 40, in, false);
  for (const Isa isa : isas()) {
    const auto backend = createBackend({.name = "cpu", .threads = 2, .isa = isa});
    const auto x = values.reals(rows * in);
    const auto clean = run(*backend, x, weight);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (const int64_t at : {0, 130, 299}) {
        auto spoilt = x;
        spoilt[static_cast<size_t>(5 * in + at)] = bad;
        const auto y = run(*backend, spoilt, weight);
        for (int64_t i = 0; i < rows * weight.out; ++i) {
          if (i / weight.out == 5) {
            ASSERT_TRUE(std::isnan(y[static_cast<size_t>(i)])) << isaName(isa);
          } else {
            ASSERT_EQ(y[static_cast<size_t>(i)], clean[static_cast<size_t>(i)]) << isaName(isa);
          }
        }
      }
    }
  }
}

// Checks the arithmetic itself: the error of an input is at most half a step, which is the run's largest input divided
// by fixedLevels, and the error of a result is at most the sum of these errors.
TEST_P(FixedPointTest, IsWithinHalfAStepOfItsInputs) {
  Values values;
  const int64_t in = 700;
  const Integers weight(values, GetParam(), 20, in, false);
  const auto x = rowsOfEveryKind(values, 12, in, levels());
  const auto y = weight.times(x);
  for (int64_t r = 0; r < 12; ++r) {
    const float* row = x.data() + r * in;
    const FixedRow fixed(row, in, GetParam());
    for (int64_t i = 0; i < in; ++i) {
      ASSERT_LE(std::abs(fixed.fixed[static_cast<size_t>(i)]), levels());
      ASSERT_LE(std::abs(double{row[i]} - double{fixed.step(i)} * fixed.fixed[static_cast<size_t>(i)]),
                fixed.step(i) * 0.505);
    }
    for (int64_t o = 0; o < weight.out; ++o) {
      double sum = 0, most = 0;
      for (int64_t i = 0; i < in; ++i) {
        const auto at = static_cast<size_t>(o * in + i);
        const double w = double{weight.scales[at]} * weight.integers[at];
        sum += w * row[i];
        most += std::abs(w) * (fixed.step(i) * 0.505 + std::abs(row[i]) * 30 * std::numeric_limits<float>::epsilon());
      }
      ASSERT_NEAR(y[static_cast<size_t>(r * weight.out + o)], sum, most) << "row " << r;
    }
  }
}

std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> all;
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const int64_t group : {0, 32, 64, 128}) {
      for (const InputFormat activations : {InputFormat::kInt16, InputFormat::kInt8}) {
        all.push_back({dtype, group, group == 64 ? DType::kFloat16 : DType::kBFloat16, activations});
      }
    }
  }
  all.push_back({DType::kInt8, 0, DType::kFloat16, InputFormat::kInt8PerToken});
  all.push_back({DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Formats, FixedPointTest, testing::ValuesIn(formats()), [](const auto& info) {
  const WeightFormat& format = info.param;
  return fmt::format("{}_{}_{}_{}", dtypeName(format.dtype), format.group, dtypeName(format.scale_dtype),
                     inputFormatName(format.activations));
});

}  // namespace
}  // namespace chorus
