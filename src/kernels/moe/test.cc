#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "base/aligned_buffer.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using MoeTest = kernel_test::EveryVariant;

// Experts' weights, packed and as values.
struct Experts {
  Experts(Values& values, int64_t count, int64_t out_features, int64_t in_features, DType type)
      : experts(count), out(out_features), in(in_features), dtype(type) {
    const int64_t stride = expertStride(dtype, out, in);
    buffer = AlignedBuffer(static_cast<size_t>(count * stride));
    for (int64_t e = 0; e < count; ++e) {
      const auto bytes = kernel_test::asDtype(values.reals(out * in), dtype);
      packRows(bytes.data(), dtype, out, in, 0, buffer.as<std::byte>() + e * stride);
    }
  }
  PackedWeight first() const { return {buffer.data(), dtype, out, in}; }
  std::vector<double> product(int64_t expert, const std::vector<double>& x) const {
    std::vector<double> y(static_cast<size_t>(out));
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t o = 0; o < out; ++o) {
      unpackRow(expertOf(first(), expert), o, row.data());
      for (size_t i = 0; i < x.size(); ++i) y[static_cast<size_t>(o)] += x[i] * row[i];
    }
    return y;
  }
  int64_t experts, out, in;
  DType dtype;
  AlignedBuffer buffer;
};

// LoRA terms for the experts in `of`, one for each.
struct Terms {
  Terms(Values& values, const Experts& linear, int64_t rank, std::initializer_list<int64_t> of) {
    begin.assign(1, 0);
    for (int64_t e = 0; e < linear.experts; ++e) {
      if (std::find(of.begin(), of.end(), e) != of.end()) {
        weights.push_back(std::make_unique<Experts>(values, 1, rank, linear.in, linear.dtype));
        const PackedWeight a = weights.back()->first();
        weights.push_back(std::make_unique<Experts>(values, 1, linear.out, rank, linear.dtype));
        terms.push_back({.a = a, .b = weights.back()->first(), .scale = 0.5f});
      }
      begin.push_back(static_cast<int32_t>(terms.size()));
    }
  }
  ExpertTerms view() const { return {terms, begin}; }
  // y += the terms' products.
  void add(int64_t expert, const std::vector<double>& x, std::vector<double>& y) const {
    for (int32_t t = begin[static_cast<size_t>(expert)]; t < begin[static_cast<size_t>(expert) + 1]; ++t) {
      const auto low = weights[static_cast<size_t>(2 * t)]->product(0, x);
      const auto high = weights[static_cast<size_t>(2 * t) + 1]->product(0, low);
      for (size_t o = 0; o < y.size(); ++o) y[o] += 0.5 * high[o];
    }
  }
  std::vector<std::unique_ptr<Experts>> weights;
  std::vector<LoraTerm> terms;
  std::vector<int32_t> begin;
};

// A mixture with three kinds of rows: without terms, with terms of all experts, and with terms of one expert.
struct Mixture {
  Mixture(Values& values, int64_t num_rows, int64_t num_experts, int64_t width, int64_t f, DType dtype)
      : rows(num_rows),
        experts(num_experts),
        hidden(width),
        fc(values, experts, 2 * f, hidden, dtype),
        proj(values, experts, hidden, f, dtype),
        all_fc(values, fc, 3, {0, 1, 2, 3, 4, 5, 6, 7}),
        all_proj(values, proj, 17, {0, 1, 2, 3, 4, 5, 6, 7}),
        one_fc(values, fc, 5, {1}),
        no_proj(values, proj, 1, {}),
        x(values.reals(rows * hidden)),
        logits(values.reals(rows * experts, -3, 3)),
        shared(values.reals(rows * hidden)),
        gate(values.reals(rows, -2, 2)) {
    for (int32_t r = 0; r < rows; ++r) {
      if (r % 3 != 0) ranges[static_cast<size_t>(r % 3 - 1)].push_back({r, r + 1});
    }
    groups = {{ranges[0], all_fc.view(), all_proj.view()}, {ranges[1], one_fc.view(), no_proj.view()}};
  }
  // Runs rows [first, first + count).
  std::vector<float> run(Backend& backend, const MoeRouting& routing, int64_t first, int64_t count, bool adds_shared) {
    const auto context = kernel_test::prepared(backend, {.groups = {.moe = groups}});
    std::vector<float> out(shared.begin() + first * hidden, shared.begin() + (first + count) * hidden);
    std::vector<float> workspace(static_cast<size_t>(moeWorkspace(count, routing.top_k, hidden, fc.out)));
    MoeArgs args = {.x = {x.data() + first * hidden, count, hidden, hidden},
                    .logits = {logits.data() + first * experts, count, experts, experts},
                    .routing = routing,
                    .fc = fc.first(),
                    .proj = proj.first(),
                    .groups = kernel_test::allOf(groups),
                    .first_row = static_cast<int32_t>(first),
                    .workspace = workspace.data(),
                    .out = kernel_test::view(out, count, hidden)};
    if (adds_shared) {
      args.shared = args.out;
      args.shared_gate = {gate.data() + first, count, 1, 1};
    }
    backend.moe(args, *context, {});
    return out;
  }
  // The result of one row in double precision, and the sum of the magnitudes of its terms.
  void exact(const MoeRouting& routing, int64_t r, bool adds_shared, std::vector<float>& out,
             std::vector<float>& size) const {
    const float* own = logits.data() + r * experts;
    std::vector<int64_t> order(static_cast<size_t>(experts));
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int64_t>(e);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return own[a] > own[b]; });
    double total = 0;
    for (int64_t i = 0; i < (routing.normalised ? routing.top_k : experts); ++i) {
      total += std::exp(double{own[order[static_cast<size_t>(i)]]});
    }
    const std::vector<double> input(x.begin() + r * hidden, x.begin() + (r + 1) * hidden);
    std::vector<double> sum(static_cast<size_t>(hidden)), magnitude(sum.size());
    for (int64_t i = 0; i < routing.top_k; ++i) {
      const int64_t e = order[static_cast<size_t>(i)];
      std::vector<double> inner = fc.product(e, input);
      if (r % 3 == 1) all_fc.add(e, input, inner);
      if (r % 3 == 2) one_fc.add(e, input, inner);
      std::vector<double> activated;
      const size_t f = inner.size() / 2;
      for (size_t j = 0; j < f; ++j) activated.push_back(inner[f + j] / (1 + std::exp(-inner[f + j])) * inner[j]);
      std::vector<double> y = proj.product(e, activated);
      if (r % 3 == 1) all_proj.add(e, activated, y);
      double largest = 0;
      for (const double value : activated) largest = std::max(largest, std::abs(value));
      const double weight = std::exp(double{own[e]}) / total;
      for (size_t c = 0; c < y.size(); ++c) {
        sum[c] += weight * y[c];
        magnitude[c] += weight * (std::abs(y[c]) + largest * static_cast<double>(f));
      }
    }
    for (size_t c = 0; c < sum.size(); ++c) {
      const double added =
          shared[static_cast<size_t>(r * hidden) + c] / (1 + std::exp(-double{gate[static_cast<size_t>(r)]}));
      if (adds_shared) sum[c] += added;
      out.push_back(static_cast<float>(sum[c]));
      size.push_back(static_cast<float>(magnitude[c] + std::abs(added)));
    }
  }

  int64_t rows, experts, hidden;
  Experts fc, proj;
  Terms all_fc, all_proj, one_fc, no_proj;
  std::vector<float> x, logits, shared, gate;
  std::array<std::vector<RowRange>, 2> ranges;
  std::vector<MoeGroup> groups;
};

// Relative rounding error of a product's inputs.
double inputError(const Variant& variant, DType weights) {
  return linearInputType(variant.isa, weights) == DType::kBFloat16 ? std::ldexp(1.0, -8) : 0.0;
}

TEST_P(MoeTest, MatchesDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [rows, experts, hidden, f] :
         {std::array<int64_t, 4>{1, 2, 17, 5}, {13, 5, 24, 31}, {40, 8, 33, 16}}) {
      Mixture mixture(values, rows, experts, hidden, f, dtype);
      for (const MoeRouting routing : {MoeRouting{1, true}, {2, true}, {2, false}}) {
        for (const bool shared : {false, true}) {
          const std::vector<float> out = mixture.run(backend, routing, 0, rows, shared);
          std::vector<float> expected, tolerance;
          for (int64_t r = 0; r < rows; ++r) mixture.exact(routing, r, shared, expected, tolerance);
          const double relative =
              std::ldexp(1.0, -24) * static_cast<double>(hidden + f + 40) + 4 * inputError(GetParam(), dtype);
          for (float& value : tolerance) value *= static_cast<float>(relative);
          kernel_test::expectNear(
              out, expected, tolerance,
              fmt::format("{} {} rows, {} experts, top {}", dtypeName(dtype), rows, experts, routing.top_k));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(MoeTest, ARowHasItsBitsInEveryBatchAndOnAnyThreads) {
  Values values;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Mixture mixture(values, 70, 6, 48, 40, dtype);
    const MoeRouting routing = {2, false};
    const std::vector<float> whole = mixture.run(newBackend(1), routing, 0, 70, true);
    Backend& backend = newBackend(3);
    const std::vector<float> threads = mixture.run(backend, routing, 0, 70, true);
    kernel_test::expectSameBits(threads.data(), whole.data(), std::ssize(whole), "three threads");
    for (const int64_t piece : {1, 7, 33}) {
      for (int64_t r = 0; r < 70; r += piece) {
        const int64_t count = std::min<int64_t>(piece, 70 - r);
        const std::vector<float> part = mixture.run(backend, routing, r, count, true);
        kernel_test::expectSameBits(part.data(), whole.data() + r * 48, count * 48,
                                    fmt::format("{} rows from {}", count, r));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MoeTest, RowsThatAreNotNumbersLeaveTheOthersAsTheyAre) {
  Values values;
  Backend& backend = newBackend(2);
  Mixture mixture(values, 9, 4, 20, 8, DType::kFloat32);
  const MoeRouting routing = {2, true};
  const std::vector<float> before = mixture.run(backend, routing, 0, 9, false);
  for (int64_t e = 0; e < 4; ++e)
    mixture.logits[static_cast<size_t>(3 * 4 + e)] = std::numeric_limits<float>::quiet_NaN();
  mixture.logits[4 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
  mixture.logits[5 * 4 + 2] = std::numeric_limits<float>::infinity();
  for (int64_t c = 0; c < 20; ++c) mixture.x[static_cast<size_t>(6 * 20 + c)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> after = mixture.run(backend, routing, 0, 9, false);
  for (const int64_t r : {0, 1, 2, 7, 8}) {
    kernel_test::expectSameBits(after.data() + r * 20, before.data() + r * 20, 20, fmt::format("row {}", r));
  }
  EXPECT_TRUE(std::isnan(after[3 * 20]));
}

TEST_P(MoeTest, NoRowsTouchNothing) {
  Values values;
  Mixture mixture(values, 1, 2, 16, 4, DType::kFloat32);
  EXPECT_TRUE(mixture.run(newBackend(2), {2, true}, 0, 0, true).empty());
}

TEST(RouteRow, ChoosesTheLargestAndOfEqualOnesTheLowest) {
  const auto routed = [](const std::vector<float>& logits, const MoeRouting& routing) {
    std::vector<int32_t> experts(static_cast<size_t>(routing.top_k));
    std::vector<float> weights(experts.size());
    routeRow(logits.data(), std::ssize(logits), routing, experts.data(), weights.data());
    return std::pair(experts, weights);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(routed({1, 3, 3, 2}, {3, true}).first, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(routed({0, 0, 0, 0}, {2, true}).first, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(routed({0, 0, 0, 0}, {2, true}).second, (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(routed({0, 0, 0, 0}, {2, false}).second, (std::vector<float>{0.25f, 0.25f}));
  EXPECT_EQ(routed({-200, 100}, {2, true}).second, (std::vector<float>{1, 0}));
  for (const std::vector<float>& logits : {std::vector<float>{nan, nan, nan}, {1, nan, 2}, {nan, 1, 2}, {1, 2, nan}}) {
    const std::vector<int32_t> experts = routed(logits, {2, false}).first;
    EXPECT_NE(experts[0], experts[1]);
    for (const int32_t expert : experts) EXPECT_TRUE(expert >= 0 && expert < 3);
  }
}

CHORUS_FOR_EVERY_VARIANT(Moe, MoeTest);
}  // namespace
}  // namespace chorus
