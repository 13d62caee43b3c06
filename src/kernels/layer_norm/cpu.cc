#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/layer_norm/cpu.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

// residual += scale * (delta + bias). Returns the sum of the new residual.
float addAndSum(const float* delta, const float* bias, float scale, float* residual, int64_t cols) {
  const FloatVec scales = hn::Set(Floats(), scale);
  return sumOfColumns(cols, [=](int64_t c, FloatVec sum) HWY_ATTR {
    FloatVec x = loadColumns(residual, c, cols);
    if (delta != nullptr || bias != nullptr) {
      FloatVec added = loadColumns(delta == nullptr ? bias : delta, c, cols);
      if (delta != nullptr && bias != nullptr) added = hn::Add(added, loadColumns(bias, c, cols));
      x = hn::Add(x, hn::Mul(scales, added));
      storeColumns(x, residual, c, cols);
    }
    return hn::Add(sum, x);
  });
}

float sumOfSquares(const float* x, float mean, int64_t cols) {
  const FloatVec means = hn::Set(Floats(), mean);
  return sumOfColumns(cols, [=](int64_t c, FloatVec sum) HWY_ATTR {
    // Lanes past the row must not count.
    const FloatVec valid = hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<size_t>(cols - c)),
                                              hn::Sub(loadColumns(x, c, cols), means));
    return mulAdd(valid, valid, sum);
  });
}

void normalise(const float* x, float mean, float scale, const RowNorm& norm, float* y, int64_t cols) {
  const Floats d;
  const FloatVec means = hn::Set(d, mean), scales = hn::Set(d, scale);
  for (int64_t c = 0; c < cols; c += kFloatLanes) {
    FloatVec v = hn::Mul(hn::Mul(hn::Sub(loadColumns(x, c, cols), means), scales), loadColumns(norm.weight, c, cols));
    if (norm.bias != nullptr) v = hn::Add(v, loadColumns(norm.bias, c, cols));
    storeColumns(v, y, c, cols);
  }
}

void layerNormRows(const LayerNormArgs& args, std::span<const NormGroup> groups, int64_t begin, int64_t end) {
  const int64_t cols = args.residual.cols;
  const auto count = static_cast<float>(cols);
  for (int64_t r = begin; r < end; ++r) {
    float* residual = args.residual.row(r);
    const float* delta = args.delta.data == nullptr ? nullptr : args.delta.row(r);
    const float mean = addAndSum(delta, args.bias, args.delta_scale, residual, cols) / count;
    if (args.y.data == nullptr) continue;
    const float scale = 1.0f / std::sqrt(sumOfSquares(residual, mean, cols) / count + args.epsilon);
    normalise(residual, mean, scale, normOfRow(groups, r, {args.weight, args.norm_bias}), args.y.row(r), cols);
  }
}

using LayerNormRows = void (*)(const LayerNormArgs&, std::span<const NormGroup>, int64_t, int64_t);
LayerNormRows rows() { return &layerNormRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using LayerNormRows = void (*)(const LayerNormArgs&, std::span<const NormGroup>, int64_t, int64_t);
IsaTable<LayerNormRows> table() { CHORUS_ISA_TABLE(LayerNormRows, rows); }
}  // namespace

void layerNormCpu(const LayerNormArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  const LayerNormRows run = workspace.select(Op::kLayerNorm, table());
  workspace.forEachPiece(args.residual.rows, args.residual.cols,
                         [&](int64_t begin, int64_t end, int) { run(args, batch.groups[args.groups], begin, end); });
}

std::vector<Variant> layerNormVariants() { return variantsOf(Op::kLayerNorm, table()); }
}  // namespace chorus
#endif
