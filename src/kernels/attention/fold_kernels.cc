#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fold_kernels.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/attention.h"
#include "kernels/attention/fold_kernels.h"
#include "kernels/cpu/math-inl.h"

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

constexpr int kVectors = static_cast<int>(kAttentionRun / kFloatLanes);

// 2^x of x <= 0 within 1 ulp, 1 of 0; 0 below -126. NaN stays NaN.
HWY_INLINE FloatVec powerOfTwo(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Too large for digits after the point; its last bits are then the exponent of 2^round(x).
  const FloatVec large = hn::Set(d, 0x1.8p23f + 127);
  const FloatVec rounded = hn::Add(x, large);
  const FloatVec r = hn::Sub(x, hn::Sub(rounded, large));
  // Of least relative error on [-1/2, 1/2] among those that are 1 at 0.
  FloatVec p = hn::Set(d, 1.53533620e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.33988750e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.61843692e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55033237e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40226477e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93147182e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const FloatVec scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, scale));
}
HWY_INLINE float powerOfTwo(float x) { return hn::GetLane(powerOfTwo(hn::Set(Floats(), x))); }

void scaleRow(float scale, float* row, int64_t count) {
  const Floats d;
  const FloatVec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factor), d, row + i);
  for (; i < count; ++i) row[i] *= scale;
}

void start(SoftmaxState& state, float* out, int64_t head_size) {
  state = {{}, -std::numeric_limits<float>::infinity()};
  std::fill(out, out + head_size, 0.0f);
}

// All lanes take part whatever `valid` is: a masked slot adds exactly 0, so the order of the sum never
// changes.
void fold(float* scores, int64_t valid, float scale, SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  if (valid <= 0) {
    std::fill(scores, scores + kAttentionRun, 0.0f);
    return;
  }
  const FloatVec factor = hn::Set(d, scale);
  FloatVec score[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) score[v] = hn::Mul(hn::LoadU(d, scores + v * kFloatLanes), factor);
  if (valid < kAttentionRun) {
    const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec slot = hn::Iota(d, static_cast<float>(v * kFloatLanes));
      score[v] = hn::IfThenElse(hn::Lt(slot, hn::Set(d, static_cast<float>(valid))), score[v], lowest);
    }
  }
  FloatVec max = score[0];
#pragma GCC unroll 16
  for (int v = 1; v < kVectors; ++v) max = hn::Max(max, score[v]);
  max = hn::Max(hn::Set(d, state.max), hn::MaxOfLanes(d, max));
  FloatVec sum = hn::Zero(d);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec weight = powerOfTwo(hn::Sub(score[v], max));
    hn::StoreU(weight, d, scores + v * kFloatLanes);
    sum = hn::Add(sum, weight);
  }
  const float new_max = hn::GetLane(max);
  if (new_max == state.max) {
    hn::StoreU(hn::Add(hn::LoadU(d, state.sums), sum), d, state.sums);
    return;
  }
  const float correction = powerOfTwo(state.max - new_max);
  state.max = new_max;
  hn::StoreU(hn::MulAdd(hn::LoadU(d, state.sums), hn::Set(d, correction), sum), d, state.sums);
  scaleRow(correction, out, head_size);
}

void merge(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  const float max = std::max(state.max, later.max);
  const float scale = powerOfTwo(state.max - max), later_scale = powerOfTwo(later.max - max);
  state.max = max;
  const FloatVec factor = hn::Set(d, scale), later_factor = hn::Set(d, later_scale);
  const auto sum = [&](FloatVec a, FloatVec b) { return hn::MulAdd(b, later_factor, hn::Mul(a, factor)); };
  hn::StoreU(sum(hn::LoadU(d, state.sums), hn::LoadU(d, later.sums)), d, state.sums);
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(sum(hn::LoadU(d, out + i), hn::LoadU(d, later_out + i)), d, out + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(sum(loadSome(out + i, left), loadSome(later_out + i, left)), left, out + i);
}

void finish(const SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  const FloatVec sum = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, state.sums))));
  // A masked slot may have turned an underflow's -0 into +0; adding +0 gives both one form.
  const FloatVec zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(hn::Add(hn::Div(hn::LoadU(d, out + i), sum), zero), d, out + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(hn::Add(hn::Div(loadSome(out + i, left), sum), zero), left, out + i);
}

const FoldKernels* kernels() {
  static const FoldKernels table = {&start, &fold, &merge, &finish};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const FoldKernels*> foldKernels() { CHORUS_ISA_TABLE(const FoldKernels*, kernels); }
}  // namespace chorus
#endif
