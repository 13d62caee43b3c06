#include <cmath>
#include <vector>

#include "kernels/gated_activation/gated_activation.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/moe/moe.h"
#include "kernels/row_groups.h"

namespace chorus::reference {
namespace {

// The product of one row with one expert's weight, and the terms of that expert.
std::vector<float> multiply(const PackedWeight& first, int64_t expert, std::span<const LoraTerm> terms,
                            const float* x) {
  const RowRange row{0, 1};
  const RowGroup group{{&row, 1}, terms, {}};
  std::vector<float> y(static_cast<size_t>(first.out));
  linear({.x = {x, 1, first.in, first.in},
          .weight = expertOf(first, expert),
          .y = {y.data(), 1, first.out, first.out},
          .groups = {0, 1}},
         {.groups = {.linear = {&group, 1}}});
  return y;
}

std::vector<float> runExpert(const MoeArgs& args, const MoeGroup* group, int64_t expert, const float* x) {
  const MoeGroup own = group == nullptr ? MoeGroup() : *group;
  std::vector<float> fc = multiply(args.fc, expert, own.fc.of(expert), x);
  const int64_t f = args.proj.in;
  std::vector<float> activated(static_cast<size_t>(f));
  gatedActivation({.fc_gate = {fc.data(), 1, 2 * f, 2 * f},
                   .kind = args.kind,
                   .out = {activated.data(), 1, f, f},
                   .activates_second = true});
  return multiply(args.proj, expert, own.proj.of(expert), activated.data());
}
}  // namespace

void moe(const MoeArgs& args, const StepBatch& batch) {
  const auto top_k = static_cast<size_t>(args.routing.top_k);
  std::vector<int32_t> experts(top_k);
  std::vector<float> weights(top_k), sum(static_cast<size_t>(args.out.cols));
  for (int64_t r = 0; r < args.x.rows; ++r) {
    routeRow(args.logits.row(r), args.logits.cols, args.routing, experts.data(), weights.data());
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (size_t i = 0; i < top_k; ++i) {
      const std::vector<float> y =
          runExpert(args, groupOf(batch.groups[args.groups], args.first_row + r), experts[i], args.x.row(r));
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += weights[i] * y[c];
    }
    float factor = 1.0f;
    if (args.shared_gate.data != nullptr) {
      factor = 1.0f / (1.0f + std::exp(-*args.shared_gate.row(r)));
    }
    for (size_t c = 0; c < sum.size(); ++c) {
      if (args.shared.data != nullptr) sum[c] += factor * args.shared.row(r)[static_cast<int64_t>(c)];
      args.out.row(r)[static_cast<int64_t>(c)] = sum[c];
    }
  }
}

}  // namespace chorus::reference
