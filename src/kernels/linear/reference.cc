#include <algorithm>
#include <span>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/row_groups.h"

namespace chorus::reference {
namespace {

// out[r] is the product of the vectors x[r] and w, summed in the order of the inputs. Several sums are computed at once
// only because an addition waits for the one before it in the same sum.
void dots(std::span<const float* const> x, const std::vector<float>& w, float* out) {
  constexpr size_t kAtOnce = 8;
  for (size_t first = 0; first < x.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, x.size() - first);
    const float* rows[kAtOnce];
    for (size_t r = 0; r < kAtOnce; ++r) rows[r] = x[first + std::min(r, count - 1)];
    float sums[kAtOnce] = {};
    for (size_t i = 0; i < w.size(); ++i) {
      for (size_t r = 0; r < kAtOnce; ++r) sums[r] += rows[r][i] * w[i];
    }
    std::copy(sums, sums + count, out + first);
  }
}

std::vector<float> feature(const PackedWeight& weight, int64_t row) {
  std::vector<float> w(static_cast<size_t>(weight.in));
  unpackRow(weight, row, w.data());
  return w;
}

// Adds the term to the rows of y.
void applyTerm(const LoraTerm& term, const std::vector<int64_t>& rows, const LinearArgs& args) {
  const auto rank = static_cast<size_t>(term.a.out);
  std::vector<const float*> x, products_of;
  std::vector<float> products(rows.size() * rank), sums(rows.size());  // products: A x of each row
  for (size_t n = 0; n < rows.size(); ++n) {
    x.push_back(args.x.row(rows[n]));
    products_of.push_back(products.data() + n * rank);
  }
  for (size_t r = 0; r < rank; ++r) {
    dots(x, feature(term.a, static_cast<int64_t>(r)), sums.data());
    for (size_t n = 0; n < rows.size(); ++n) products[n * rank + r] = sums[n];
  }
  for (int64_t o = 0; o < term.b.out; ++o) {
    dots(products_of, feature(term.b, o), sums.data());
    const float bias = term.bias != nullptr ? term.bias[o] : 0.0f;
    for (size_t n = 0; n < rows.size(); ++n) {
      float& out = args.y.row(rows[n])[term.out_begin + o];
      out += term.scale * (sums[n] + bias);
      if (term.magnitude != nullptr) out *= term.magnitude[o];
    }
  }
}
}  // namespace

void linear(const LinearArgs& args, const StepBatch& batch) {
  const auto groups = batch.groups[args.groups];
  const auto multiply = [&](const PackedWeight& weight, const std::vector<int64_t>& rows) {
    std::vector<const float*> x;
    for (const int64_t r : rows) x.push_back(args.x.row(r));
    std::vector<float> sums(rows.size());
    for (int64_t o = 0; o < weight.out; ++o) {
      dots(x, feature(weight, o), sums.data());
      for (size_t n = 0; n < rows.size(); ++n) args.y.row(rows[n])[o] = sums[n];
    }
  };
  std::vector<int64_t> base_rows;  // rows with the base's weight
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const RowGroup* group = groupOf(groups, args.first_row + r);
    if (group == nullptr || group->weight.data == nullptr) base_rows.push_back(r);
  }
  if (!base_rows.empty()) multiply(args.weight, base_rows);
  for (const RowGroup& group : groups) {
    std::vector<int64_t> rows;
    for (const RowRange range : group.ranges) {
      const RowRange within = rangeWithin(range, args.first_row, args.x.rows);
      for (int64_t r = within.begin; r < within.end; ++r) rows.push_back(r);
    }
    if (rows.empty()) continue;
    if (group.weight.data != nullptr) multiply(group.weight, rows);
    for (const LoraTerm& term : group.parts) applyTerm(term, rows, args);
  }
}

}  // namespace chorus::reference
