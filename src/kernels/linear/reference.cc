#include <vector>

#include "kernels/linear/linear.h"

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

void applyPart(const LinearPart& part, const float* x, float* y) {
  std::vector<float> t(static_cast<size_t>(part.a.out));
  for (int64_t r = 0; r < part.a.out; ++r) t[static_cast<size_t>(r)] = dot(x, feature(part.a, r));
  for (int64_t o = 0; o < part.b.out; ++o) {
    float& out = y[part.out_begin + o];
    out += part.scale * dot(t.data(), feature(part.b, o));
    if (part.magnitude != nullptr) out *= part.magnitude[o];
  }
}
}  // namespace

void linear(const LinearArgs& args) {
  for (int64_t o = 0; o < args.weight.out; ++o) {
    const std::vector<float> w = feature(args.weight, o);
    for (int64_t r = 0; r < args.x.rows; ++r) {
      args.y.data[r * args.y.stride + o] = dot(args.x.data + r * args.x.stride, w);
    }
  }
  for (const RowGroup& group : args.groups) {
    for (const RowRange range : group.ranges) {
      for (int64_t r = range.begin; r < range.end; ++r) {
        for (const LinearPart& part : group.parts) {
          applyPart(part, args.x.data + r * args.x.stride, args.y.data + r * args.y.stride);
        }
      }
    }
  }
}

}  // namespace chorus::reference
