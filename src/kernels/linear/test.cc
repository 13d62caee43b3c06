#include <algorithm>
#include <limits>
#include <span>

#include "kernels/linear/panel_layout.h"
#include "kernels/testing/fixed_reference.h"
#include "kernels/testing/linear_cases.h"

namespace chorus {
namespace {

using namespace linear_test;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

TEST(PackRowsTest, UnpackGivesTheRoundedRowsBack) {
  Values values;
  for (const DType dtype : kDtypes) {
    for (const int64_t out : {1, 15, 16, 17, 31, 48, 100}) {
      for (const int64_t in : {1, 2, 3, 7, 64, 65, 130}) {
        const auto source = values.reals(out * in);
        const auto rows = kernel_test::asDtype(source, dtype);
        AlignedBuffer memory(static_cast<size_t>(packedBytes(dtype, out, in)));
        std::memset(memory.data(), 0xff, memory.size());
        // Packs in two pieces that are split at a random row, so that they may share a panel.
        const int64_t split = values.integer(0, out);
        packRows(rows.data(), dtype, split, in, 0, memory.data());
        packRows(rows.data() + static_cast<size_t>(split * in) * dtypeSize(dtype), dtype, out - split, in, split,
                 memory.data());
        const PackedWeight weight{memory.data(), dtype, out, in};
        const auto all = unpackAll(weight);
        for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], loadAsFloat(rows.data(), dtype, i));
        // Features past out and the second half of a last pair are zero.
        const PackedWeight padded{memory.data(), dtype, (out + 15) / 16 * 16, in};
        std::vector<float> feature(static_cast<size_t>(in));
        for (int64_t o = out; o < padded.out; ++o) {
          unpackRow(padded, o, feature.data());
          for (const float value : feature) ASSERT_EQ(value, 0.0f);
        }
      }
    }
  }
}

// unpackRow returns the packed integers times their scales.
TEST(PackRowsTest, QuantisedRowsAreIntegersTimesScales) {
  Values values;
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const int64_t group : {0, 32, 64, 128}) {
      for (const int64_t out : {1, 2, 15, 16, 17, 48, 101}) {
        for (const int64_t in : {1, 3, 7, 8, 9, 31, 32, 33, 64, 130, 1023, 1024, 1025, 2100}) {
          const WeightFormat format{dtype, group, DType::kFloat16};
          const Rows rows(values, format, out, in);
          AlignedBuffer memory(static_cast<size_t>(packedBytes(format, out, in)));
          std::memset(memory.data(), 0xff, memory.size());
          // Packs in two pieces that are split at a random row, so that they may share a panel.
          const int64_t split = values.integer(0, out) / 2 * 2;
          rows.pack(format, 0, split, in, memory.data());
          rows.pack(format, split, out, in, memory.data());
          const PackedWeight weight{memory.data(), format, out, in};
          const auto all = unpackAll(weight);
          for (int64_t o = 0; o < out; ++o) {
            for (int64_t i = 0; i < in; ++i) {
              const int64_t at = (dtype == DType::kInt4 ? o / 2 : o) * in + i;
              auto integer = static_cast<int>(static_cast<int8_t>(rows.elements[static_cast<size_t>(at)]));
              if (dtype == DType::kInt4) {
                integer = o % 2 == 0 ? static_cast<int8_t>(static_cast<uint8_t>(integer) << 4) >> 4 : integer >> 4;
              }
              const int64_t g = group > 0 ? i / group : 0;
              const float scale = toFloat(toF16(rows.scales[static_cast<size_t>(o * rows.groups + g)]));
              ASSERT_EQ(all[static_cast<size_t>(o * in + i)], static_cast<float>(integer) * scale)
                  << dtypeName(dtype) << " group " << group << " feature " << o << " of " << out << " input " << i;
            }
          }
          const PackedWeight padded{memory.data(), format, (out + 15) / 16 * 16, in};
          std::vector<float> feature(static_cast<size_t>(in));
          for (int64_t o = out; o < padded.out; ++o) {
            unpackRow(padded, o, feature.data());
            for (const float value : feature) ASSERT_EQ(value, 0.0f);
          }
        }
      }
    }
  }
}

// Quantised weights take fixed-point inputs only in models of 16-bit types.
TEST(LinearInputRunTest, IsOfModelsOf16Bits) {
  for (const Isa isa : availableIsas()) {
    for (const DType dtype : {DType::kInt8, DType::kInt4}) {
      for (const int64_t group : {0, 32, 64, 128}) {
        EXPECT_EQ(linearInputRun(isa, {dtype, group, DType::kFloat32}), 0) << isaName(isa);
        for (const DType scales : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
          EXPECT_EQ(linearInputType(isa, {dtype, group, scales}), DType::kFloat32) << isaName(isa);
          const bool fixed = scales != DType::kFloat32;
          EXPECT_EQ(linearInputRun(isa, {dtype, group, scales}), !fixed ? 0 : group > 0 ? group : 128) << isaName(isa);
        }
      }
    }
    const WeightFormat per_token(DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken);
    EXPECT_GE(linearInputRun(isa, per_token), kMostInputsPerToken) << isaName(isa);
  }
}

class LinearTest : public kernel_test::EveryVariant {
 protected:
  std::vector<DType> dtypes() const {
    if (GetParam().dtype) return {*GetParam().dtype};
    return {panelFormats().begin(), panelFormats().end()};
  }
  // A weight of a format that this variant takes. Variants that have only fixed point take only scales of 16 bits,
  // which mean that the model is of 16 bits.
  Weight anyWeight(Values& values, DType dtype, int64_t out, int64_t in) const {
    WeightFormat format = anyFormat(values, dtype);
    const std::optional<Isa> isa = GetParam().isa;
    const bool fixed = isa && linearIsa(*isa, {dtype, 0, DType::kFloat32}) != *isa;
    while (isQuantised(dtype) && fixed && format.scale_dtype == DType::kFloat32) format = anyFormat(values, dtype);
    return makeWeight(values, format, out, in);
  }
  DType inputType(const PackedWeight& weight) const { return linearInputType(GetParam().isa, weight.format()); }
  // Input type of the products of those adapters that Adapters::add makes in the type of this weight's model.
  DType partInputType(const PackedWeight& weight) const {
    return linearInputType(GetParam().isa, isQuantised(weight.dtype) ? weight.scale_dtype : weight.dtype);
  }
  static std::vector<float> rounded(std::vector<float> x, DType type) {
    const auto bytes = kernel_test::asDtype(x, type);
    for (size_t i = 0; i < x.size(); ++i) x[i] = loadAsFloat(bytes.data(), type, i);
    return x;
  }
  // x rounded as the products take it.
  std::vector<float> asTaken(std::vector<float> x, const PackedWeight& weight) const {
    if (linearInputRun(GetParam().isa, weight.format()) == 0) return rounded(std::move(x), inputType(weight));
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(weight.in)) {
      const kernel_test::FixedRow fixed(x.data() + row, weight.in, weight.format());
      for (int64_t i = 0; i < weight.in; ++i) x[row + static_cast<size_t>(i)] = fixed.value(i);
    }
    return x;
  }
  std::vector<float> expected(const std::vector<float>& x, const PackedWeight& weight,
                              std::span<const RowGroup> groups = {}, int64_t width = 0) const {
    return exactly([&](const PackedWeight& of) { return asTaken(x, of); }, weight, groups, width);
  }
  std::vector<float> toleranceOf(const std::vector<float>& x, const PackedWeight& weight,
                                 const std::vector<int>& adapter_of = {}, const Adapters& adapters = {},
                                 int64_t width = 0) const {
    return tolerance(asTaken(x, weight), weight, partInputType(weight), adapter_of, adapters, width);
  }
};

TEST_P(LinearTest, MatchesDoublePrecisionAtEveryEdge) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : dtypes()) {
    for (const int64_t out : {1, 15, 16, 17, 31, 48, 100}) {
      for (const int64_t in : {1, 2, 3, 7, 15, 16, 17, 64, 65, 100, 257}) {
        const Weight weight = anyWeight(values, dtype, out, in);
        for (const int64_t rows : {0, 1, 2, 3, 5, 8, 13, 16, 17, 33, 70}) {
          auto x = values.reals(rows * in);
          kernel_test::expectNear(run(backend, x, weight.view), expected(x, weight.view), toleranceOf(x, weight.view),
                                  fmt::format("{} rows {} out {} in {}", dtypeName(dtype), rows, out, in));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(LinearTest, LongInputsAndManyRowsCrossEveryBlock) {
  Values values;
  Backend& backend = newBackend(2);
  // 3456 is a multiple of PanelKernels::block_inputs in every format, so block products are used; 2051 is not.
  for (const int64_t in : {2051, 3456}) {
    const Weight weight = anyWeight(values, dtypes().front(), 150, in);
    auto x = values.reals(411 * in);
    const auto y = run(backend, x, weight.view);
    kernel_test::expectNear(y, expected(x, weight.view), toleranceOf(x, weight.view), fmt::format("{} inputs", in));
    for (const int64_t row : {0, 119, 120, 250, 255, 256, 410}) {
      std::vector<float> one(x.begin() + row * in, x.begin() + (row + 1) * in);
      kernel_test::expectSameBits(run(backend, one, weight.view).data(), y.data() + row * weight.view.out,
                                  weight.view.out, fmt::format("row {} alone", row));
    }
  }
}

TEST_P(LinearTest, AdapterPartsMatchDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : dtypes()) {
    for (const int64_t rows : {1, 2, 13, 33, 140, 141}) {
      const int64_t in = rows == 141 ? 128 : rows % 2 == 0 ? 100 : 65, out = 150;
      const Weight weight = anyWeight(values, dtype, out, in);
      Adapters adapters;
      for (const int64_t rank : {1, 3, 8, 16, 17, 64}) adapters.add(values, weight.view, {rank});
      adapters.add(values, weight.view, {4, 16, 33});
      adapters.add(values, weight.view, {0});
      adapters.add(values, weight.view, {5, 0, 9, 0});
      adapters.add(values, weight.view, {}, true);
      adapters.add(values, weight.view, {8, 0}, true);
      const int64_t width = widest(weight.view, adapters) + 3;
      std::vector<int> adapter_of;
      for (int64_t r = 0; r < rows; ++r) {
        adapter_of.push_back(r > 0 && values.integer(0, 2) > 0 ? adapter_of.back()
                                                               : static_cast<int>(values.integer(-1, 10)));
      }
      const Assignment assignment(adapter_of, adapters);
      auto x = values.reals(rows * in);
      kernel_test::expectNear(
          run(backend, x, weight.view, assignment.groups, width), expected(x, weight.view, assignment.groups, width),
          toleranceOf(x, weight.view, adapter_of, adapters, width), fmt::format("{} rows {}", dtypeName(dtype), rows));
      if (HasFatalFailure()) return;
    }
  }
}

// A row has the bits of its solo call, whatever else is in the call and however many threads run it.
TEST_P(LinearTest, EveryRowOfAMixedCallHasTheBitsOfItsSoloCall) {
  Values values;
  Backend& solo = newBackend(1);
  const std::vector<Backend*> backends = {&newBackend(1), &newBackend(2), &newBackend(3)};
  for (const DType dtype : dtypes()) {
    const int64_t out = 2 * 64 * 16 + 77;
    for (int round = 0; round < 12; ++round) {
      // 2051: several slabs of inputs, and terms that are added more than once in a task.
      const int64_t in = round % 6 == 5 ? 2051 : round % 2 == 0 ? 131 : 384;
      const Weight weight = anyWeight(values, dtype, out, in);
      Adapters adapters;
      for (const int64_t rank : {1, 16, 33}) adapters.add(values, weight.view, {rank, 3});
      adapters.add(values, weight.view, {0, 8, 0});
      adapters.add(values, weight.view, {}, true);
      adapters.add(values, weight.view, {4, 0}, true);
      const int64_t width = widest(weight.view, adapters);
      const int64_t rows = values.integer(1, round % 3 == 0 ? 150 : 20);
      auto x = values.reals(rows * in);
      std::vector<int> adapter_of;
      for (int64_t r = 0; r < rows; ++r) adapter_of.push_back(static_cast<int>(values.integer(-1, 5)));
      const Assignment mixed(adapter_of, adapters);
      std::vector<std::vector<float>> results;
      for (Backend* backend : backends) results.push_back(run(*backend, x, weight.view, mixed.groups, width));
      for (size_t b = 1; b < results.size(); ++b) {
        kernel_test::expectSameBits(results[b].data(), results[0].data(), rows * width, "threads");
      }
      for (int probe = 0; probe < 4; ++probe) {
        const int64_t row = values.integer(0, rows - 1);
        std::vector<float> one(x.begin() + row * in, x.begin() + (row + 1) * in);
        const Assignment alone({adapter_of[static_cast<size_t>(row)]}, adapters);
        kernel_test::expectSameBits(results[0].data() + row * width,
                                    run(solo, one, weight.view, alone.groups, width).data(), width,
                                    fmt::format("row {} of {}", row, rows));
      }
      if (HasFatalFailure()) return;
    }
  }
}

// A call may process some rows of the step: its rows have the bits that they have in a call with all rows.
TEST_P(LinearTest, SomeRowsOfTheStepTakeTheirGroups) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : dtypes()) {
    const int64_t in = 131, rows = 90;
    const Weight weight = anyWeight(values, dtype, 77, in);
    Adapters adapters;
    adapters.add(values, weight.view, {16});
    adapters.add(values, weight.view, {3, 8});
    adapters.add(values, weight.view, {4}, true);
    const int64_t width = widest(weight.view, adapters);
    auto x = values.reals(rows * in);
    std::vector<int> adapter_of;
    for (int64_t r = 0; r < rows; ++r) {
      const bool same = r > 0 && values.integer(0, 2) > 0;
      adapter_of.push_back(same ? adapter_of.back() : static_cast<int>(values.integer(-1, 2)));
    }
    const Assignment all(adapter_of, adapters);
    const auto expected = run(backend, x, weight.view, all.groups, width);
    for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 1}, {0, 45}, {13, 14}, {40, 90}, {89, 90}}) {
      std::vector<float> some(x.begin() + first * in, x.begin() + end * in);
      const auto y = run(backend, some, weight.view, all.groups, width, static_cast<int32_t>(first));
      kernel_test::expectSameBits(y.data(), expected.data() + first * width, (end - first) * width,
                                  fmt::format("rows {} to {}", first, end));
    }
  }
}

// If only groups have outputs, the other rows of y stay unchanged.
TEST_P(LinearTest, TheBaseMayHaveNoOutputs) {
  Values values;
  Backend& backend = newBackend(2);
  const DType dtype = dtypes().front();
  const int64_t in = 70, out = 33, rows = 9;
  const Weight own = anyWeight(values, dtype, out, in);
  auto x = values.reals(rows * in);
  const auto all = run(backend, x, own.view);
  const RowRange ranges[] = {{1, 3}, {6, 8}};
  const RowGroup group{ranges, {}, own.view};
  const auto y = run(backend, x, PackedWeight(nullptr, dtype, 0, in), {&group, 1}, out);
  for (int64_t r = 0; r < rows; ++r) {
    const bool in_group = r == 1 || r == 2 || r == 6 || r == 7;
    const std::vector<float> untouched(static_cast<size_t>(out), kUntouched);
    kernel_test::expectSameBits(y.data() + r * out, in_group ? all.data() + r * out : untouched.data(), out,
                                fmt::format("row {}", r));
  }
}

TEST_P(LinearTest, RowsAndColumnsOutsideTheViewsStayUntouched) {
  Values values;
  Backend& backend = newBackend(2);
  const Weight weight = anyWeight(values, dtypes().front(), 37, 19);
  auto x = values.reals(7 * 40);
  std::vector<float> y(7 * 64, -5.0f);
  const auto context = backend.createContext();
  backend.linear({.x = {x.data() + 3, 7, 19, 40}, .weight = weight.view, .y = {y.data() + 5, 7, 37, 64}}, *context, {});
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t col = i % 64;
    if (col >= 5 && col < 42) continue;
    ASSERT_EQ(y[i], -5.0f) << i;
  }
}

// NaN and infinity in a row must not reach other rows.
TEST_P(LinearTest, NaNAndInfinityReachTheirRowAlone) {
  Values values;
  Backend& backend = newBackend(2);
  const Weight weight = anyWeight(values, dtypes().front(), 50, 33);
  for (const int64_t rows : {2, 7, 40}) {
    auto x = values.reals(rows * 33);
    const auto clean = run(backend, x, weight.view);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto spoilt = x;
      spoilt[static_cast<size_t>(1 * 33 + 32)] = bad;
      const auto y = run(backend, spoilt, weight.view);
      for (int64_t r = 0; r < rows; ++r) {
        if (r != 1) {
          kernel_test::expectSameBits(y.data() + r * 50, clean.data() + r * 50, 50, fmt::format("row {}", r));
          continue;
        }
        for (int64_t o = 0; o < 50; ++o) EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(50 + o)])) << o;
      }
    }
  }
}

// An infinite input has the same effect on its row in every batch, also where a term's rank fills no panel, and none on
// the rows of other groups.
TEST_P(LinearTest, InfinityWithAdaptersHasTheBitsOfItsSoloCall) {
  Values values;
  Backend& backend = newBackend(2);
  const int64_t in = 128, out = 64;
  const Weight weight = anyWeight(values, dtypes().front(), out, in);
  for (const int64_t rank : {1, 2, 8, 16, 24}) {
    Adapters adapters;
    adapters.add(values, weight.view, {rank});
    adapters.add(values, weight.view, {rank});
    for (const int64_t rows : {2, 12, 40}) {
      auto x = values.reals(rows * in);
      x[5] = std::numeric_limits<float>::infinity();
      std::vector<int> adapter_of(static_cast<size_t>(rows), 0);
      for (size_t r = 1; r < adapter_of.size(); r += 3) adapter_of[r] = r % 2 == 0 ? 1 : -1;
      const auto y = run(backend, x, weight.view, Assignment(adapter_of, adapters).groups);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> one(x.begin() + r * in, x.begin() + (r + 1) * in);
        const auto alone =
            run(backend, one, weight.view, Assignment({adapter_of[static_cast<size_t>(r)]}, adapters).groups);
        for (int64_t o = 0; o < out; ++o) {
          const float mixed = y[static_cast<size_t>(r * out + o)], solo = alone[static_cast<size_t>(o)];
          ASSERT_TRUE(mixed == solo || (std::isnan(mixed) && std::isnan(solo)))
              << "rank " << rank << " row " << r << " of " << rows << " column " << o << ": " << mixed << ", alone "
              << solo;
        }
      }
    }
  }
}

// Terms of other types than the weight's, in a call with many rows and in one tile with terms of the weight's type.
TEST_P(LinearTest, TermsOfOtherTypesInManyRows) {
  Values values;
  Backend& backend = newBackend(2);
  const int64_t in = 128, out = 64, rows = 45;
  const Weight weight = anyWeight(values, dtypes().front(), out, in);
  Adapters adapters;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    adapters.add(values, PackedWeight(nullptr, dtype, out, in), {8});
  }
  std::vector<int> adapter_of(static_cast<size_t>(rows), 3);
  for (size_t r = 0; r < 20; ++r) adapter_of[r] = static_cast<int>(r % 3);
  auto x = values.reals(rows * in);
  const auto y = run(backend, x, weight.view, Assignment(adapter_of, adapters).groups);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> one(x.begin() + r * in, x.begin() + (r + 1) * in);
    const auto alone =
        run(backend, one, weight.view, Assignment({adapter_of[static_cast<size_t>(r)]}, adapters).groups);
    kernel_test::expectSameBits(y.data() + r * out, alone.data(), out, fmt::format("row {}", r));
  }
}

// Denormal weights count like other numbers, except in bfloat16 dot products.
TEST_P(LinearTest, DenormalWeightsCount) {
  Values values;
  Backend& backend = newBackend(2);
  const DType dtype = dtypes().front();
  const WeightFormat format = isQuantised(dtype) ? WeightFormat{dtype, 32, DType::kBFloat16} : WeightFormat{dtype};
  const float size = dtype == DType::kFloat16 ? 3e-5f : 5e-39f;
  const int64_t out = 37, in = 70;
  const Weight weight = makeWeight(values, format, out, in, size);
  auto x = values.reals(3 * in, 1e4f, 2e4f);
  const auto y = run(backend, x, weight.view);
  if (!isQuantised(dtype) && inputType(weight.view) == DType::kBFloat16) {
    // The instruction for dot products takes denormals for zeros.
    for (const float value : y) ASSERT_EQ(value, 0.0f);
    return;
  }
  kernel_test::expectNear(y, expected(x, weight.view), toleranceOf(x, weight.view), "denormal weights");
  EXPECT_GT(std::abs(*std::max_element(y.begin(), y.end())), 0.0f);
}

TEST(LinearFloat16, EveryWeightIsWidenedExactly) {
  constexpr int64_t kOut = 1 << 16;
  std::vector<f16> halves(kOut);
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  const AlignedBuffer packed(static_cast<size_t>(packedBytes(DType::kFloat16, kOut, 1)));
  packRows(halves.data(), DType::kFloat16, kOut, 1, 0, packed.data());
  for (const Isa isa : availableIsas()) {
    SCOPED_TRACE(isaName(isa));
    const auto backend = createBackend({.threads = 2, .isa = isa});
    std::vector<float> one = {1.0f};
    const std::vector<float> y = run(*backend, one, {packed.data(), DType::kFloat16, kOut, 1});
    for (size_t i = 0; i < halves.size(); ++i) {
      const float exact = toFloat(halves[i]);
      ASSERT_TRUE(std::isnan(exact) ? std::isnan(y[i]) : y[i] == exact) << "bits " << i << ": " << y[i];
    }
  }
}

CHORUS_FOR_EVERY_VARIANT(Linear, LinearTest);
}  // namespace
}  // namespace chorus
