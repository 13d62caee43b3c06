#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/rms_norm/cpu.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

// residual += scale * (delta + bias). Returns the sum of the squares of the new residual.
float addAndSquare(const float* delta, const float* bias, float scale, float* residual, int64_t cols) {
  const FloatVec scales = hn::Set(Floats(), scale);
  return sumOfColumns(cols, [=](int64_t c, FloatVec sum) HWY_ATTR {
    FloatVec x = loadColumns(residual, c, cols);
    if (delta != nullptr || bias != nullptr) {
      FloatVec added = loadColumns(delta == nullptr ? bias : delta, c, cols);
      if (delta != nullptr && bias != nullptr) added = hn::Add(added, loadColumns(bias, c, cols));
      x = hn::Add(x, hn::Mul(scales, added));
      storeColumns(x, residual, c, cols);
    }
    return mulAdd(x, x, sum);
  });
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

void rmsNormRows(const RmsNormArgs& args, std::span<const NormGroup> groups, int64_t begin, int64_t end) {
  const int64_t cols = args.residual.cols;
  for (int64_t r = begin; r < end; ++r) {
    float* residual = args.residual.row(r);
    const float* delta = args.delta.data == nullptr ? nullptr : args.delta.row(r);
    const float sum = addAndSquare(delta, args.bias, args.delta_scale, residual, cols);
    if (args.y.data == nullptr) continue;
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + args.epsilon);
    normalise(residual, scale, normOfRow(groups, r, {args.weight, nullptr}).weight, args.y.row(r), cols);
  }
}

using RmsNormRows = void (*)(const RmsNormArgs&, std::span<const NormGroup>, int64_t, int64_t);
RmsNormRows rows() { return &rmsNormRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using RmsNormRows = void (*)(const RmsNormArgs&, std::span<const NormGroup>, int64_t, int64_t);
IsaTable<RmsNormRows> table() { CHORUS_ISA_TABLE(RmsNormRows, rows); }
}  // namespace

void rmsNormCpu(const RmsNormArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  const RmsNormRows run = workspace.select(Op::kRmsNorm, table());
  workspace.forEachPiece(args.residual.rows, args.residual.cols,
                         [&](int64_t begin, int64_t end, int) { run(args, batch.groups[args.groups], begin, end); });
}

std::vector<Variant> rmsNormVariants() { return variantsOf(Op::kRmsNorm, table()); }
}  // namespace chorus
#endif
