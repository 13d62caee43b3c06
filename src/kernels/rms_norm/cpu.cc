#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/math-inl.h"
#include "kernels/rms_norm/cpu.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

// residual += delta + bias. Returns the sum of the squares of the new residual; the order of its additions depends only
// on `cols`.
float addAndSquare(const float* delta, const float* bias, float* residual, int64_t cols) {
  const Floats d;
  FloatVec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const auto some = [cols](const float* p, int64_t c) HWY_ATTR {
    return c + kFloatLanes <= cols ? hn::LoadU(Floats(), p + c) : loadSome(p + c, cols - c);
  };
  for (int64_t c = 0; c < cols; c += 4 * kFloatLanes) {
    for (int64_t i = 0; i < 4 && c + i * kFloatLanes < cols; ++i) {
      const int64_t at = c + i * kFloatLanes;
      FloatVec x = some(residual, at);
      if (delta != nullptr || bias != nullptr) {
        FloatVec added = delta == nullptr ? some(bias, at) : some(delta, at);
        if (delta != nullptr && bias != nullptr) added = hn::Add(added, some(bias, at));
        x = hn::Add(x, added);
        if (at + kFloatLanes <= cols) {
          hn::StoreU(x, d, residual + at);
        } else {
          storeSome(x, cols - at, residual + at);
        }
      }
      sums[i] = hn::MulAdd(x, x, sums[i]);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

void normalise(const float* x, float scale, const float* weight, float* y, int64_t cols) {
  const Floats d;
  const FloatVec scales = hn::Set(d, scale);
  int64_t c = 0;
  for (; c + kFloatLanes <= cols; c += kFloatLanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + c), scales), hn::LoadU(d, weight + c)), d, y + c);
  }
  for (; c < cols; ++c) y[c] = x[c] * scale * weight[c];
}

void rmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const int64_t cols = args.residual.cols;
  for (int64_t r = begin; r < end; ++r) {
    float* residual = args.residual.data + r * args.residual.stride;
    const float* delta = args.delta.data == nullptr ? nullptr : args.delta.data + r * args.delta.stride;
    const float sum = addAndSquare(delta, args.bias, residual, cols);
    if (args.y.data == nullptr) continue;
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + args.epsilon);
    normalise(residual, scale, normWeight(args, r), args.y.data + r * args.y.stride, cols);
  }
}

using RmsNormRows = void (*)(const RmsNormArgs&, int64_t, int64_t);
RmsNormRows rows() { return &rmsNormRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using RmsNormRows = void (*)(const RmsNormArgs&, int64_t, int64_t);
IsaTable<RmsNormRows> table() { CHORUS_ISA_TABLE(RmsNormRows, rows); }
}  // namespace

void rmsNormCpu(const RmsNormArgs& args, CpuWorkspace& workspace) {
  const RmsNormRows run = workspace.select(Op::kRmsNorm, table());
  workspace.forEachPiece(args.residual.rows, args.residual.cols,
                         [&](int64_t begin, int64_t end, int) { run(args, begin, end); });
}

std::vector<Variant> rmsNormVariants() { return variantsOf(Op::kRmsNorm, table()); }
}  // namespace chorus
#endif
