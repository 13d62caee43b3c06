#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"

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

void applyPart(const LoraTerm& part, const float* x, float* y) {
  std::vector<float> t(static_cast<size_t>(part.a.out));
  for (int64_t r = 0; r < part.a.out; ++r) t[static_cast<size_t>(r)] = dot(x, feature(part.a, r));
  for (int64_t o = 0; o < part.b.out; ++o) {
    float& out = y[part.out_begin + o];
    const float bias = part.bias != nullptr ? part.bias[o] : 0.0f;
    out += part.scale * (dot(t.data(), feature(part.b, o)) + bias);
    if (part.magnitude != nullptr) out *= part.magnitude[o];
  }
}
}  // namespace

void linear(const LinearArgs& args, const StepBatch& batch) {
  const auto groups = batch.groups[args.groups];
  std::vector<const RowGroup*> group_of(static_cast<size_t>(args.x.rows));
  for (const RowGroup& group : groups) {
    for (const RowRange range : group.ranges) {
      const RowRange rows = rangeWithin(range, args.first_row, args.x.rows);
      for (int64_t r = rows.begin; r < rows.end; ++r) group_of[static_cast<size_t>(r)] = &group;
    }
  }
  const auto multiply = [&](const PackedWeight& weight, const RowGroup* owner) {
    for (int64_t o = 0; o < weight.out; ++o) {
      const std::vector<float> w = feature(weight, o);
      for (int64_t r = 0; r < args.x.rows; ++r) {
        const RowGroup* group = group_of[static_cast<size_t>(r)];
        const RowGroup* owner_of_row = group != nullptr && group->weight.data != nullptr ? group : nullptr;
        if (owner_of_row == owner) args.y.row(r)[o] = dot(args.x.row(r), w);
      }
    }
  };
  multiply(args.weight, nullptr);
  for (const RowGroup& group : groups) {
    if (group.weight.data != nullptr) multiply(group.weight, &group);
  }
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const RowGroup* group = group_of[static_cast<size_t>(r)];
    if (group == nullptr) continue;
    for (const LoraTerm& part : group->parts) {
      applyPart(part, args.x.row(r), args.y.row(r));
    }
  }
}

}  // namespace chorus::reference
