#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/row_groups.h"

namespace chorus::reference {
namespace {

float dot(const float* x, const std::vector<float>& w) {
  float sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * w[i];
  return sum;
}

std::vector<float> feature(const PackedWeight& weight, int64_t row) {
  std::vector<float> w(static_cast<size_t>(weight.in));
  unpackRow(weight, row, w.data());
  return w;
}

// Adds the term to the rows of y.
void applyTerm(const LoraTerm& term, const std::vector<int64_t>& rows, const LinearArgs& args) {
  const auto rank = static_cast<size_t>(term.a.out);
  std::vector<float> products(rows.size() * rank);  // A x of each row
  for (size_t r = 0; r < rank; ++r) {
    const std::vector<float> w = feature(term.a, static_cast<int64_t>(r));
    for (size_t n = 0; n < rows.size(); ++n) products[n * rank + r] = dot(args.x.row(rows[n]), w);
  }
  for (int64_t o = 0; o < term.b.out; ++o) {
    const std::vector<float> w = feature(term.b, o);
    const float bias = term.bias != nullptr ? term.bias[o] : 0.0f;
    for (size_t n = 0; n < rows.size(); ++n) {
      float& out = args.y.row(rows[n])[term.out_begin + o];
      out += term.scale * (dot(products.data() + n * rank, w) + bias);
      if (term.magnitude != nullptr) out *= term.magnitude[o];
    }
  }
}
}  // namespace

void linear(const LinearArgs& args, const StepBatch& batch) {
  const auto groups = batch.groups[args.groups];
  const auto multiply = [&](const PackedWeight& weight, const std::vector<int64_t>& rows) {
    for (int64_t o = 0; o < weight.out; ++o) {
      const std::vector<float> w = feature(weight, o);
      for (const int64_t r : rows) args.y.row(r)[o] = dot(args.x.row(r), w);
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
