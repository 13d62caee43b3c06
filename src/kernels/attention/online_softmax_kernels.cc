#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/online_softmax_kernels.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/attention.h"
#include "kernels/attention/online_softmax_kernels.h"
#include "kernels/cpu/row_sums-inl.h"

#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

constexpr int kVectors = static_cast<int>(kAttentionRun / kFloatLanes);
static_assert(sizeof(SoftmaxState::sums) == kSumLanes * sizeof(float));
constexpr float kLog2E = 1.44269504f;

// 2^x for x <= 0, within 1 ulp; 2^0 is exactly 1, and the result is 0 below -126. NaN stays NaN.
HWY_INLINE FloatVec powerOfTwo(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // A float this large has no bits after the binary point, so adding it rounds x to an integer. The last bits of the
  // sum are then the exponent of 2^round(x).
  const FloatVec large = hn::Set(d, 0x1.8p23f + 127);
  const FloatVec rounded = hn::Add(x, large);
  const FloatVec r = hn::Sub(x, hn::Sub(rounded, large));
  // The polynomial of least relative error on [-1/2, 1/2] among those that are 1 at 0.
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

void start(SoftmaxState& state, float* out, int64_t head_size) {
  state = {{}, -std::numeric_limits<float>::infinity()};
  std::fill(out, out + head_size, 0.0f);
}

// Scores of a call without slopes and without a soft cap.
struct ScaledScore {
  FloatVec factor;
  HWY_INLINE explicit ScaledScore(const SoftmaxUpdate& args) : factor(hn::Set(Floats(), args.scale * kLog2E)) {}
  HWY_INLINE void setRow(const SoftmaxUpdate&, int) {}
  HWY_INLINE FloatVec operator()(FloatVec product, FloatVec /*slot*/) const { return hn::Mul(product, factor); }
};

// Scores of a call with slopes, a soft cap, or both.
struct ModifiedScore {
  bool capped;
  FloatVec factor, cap, slope, distance;  // distance: position of slot 0 - position of the query
  HWY_INLINE explicit ModifiedScore(const SoftmaxUpdate& args)
      : capped(args.softcap != 0),
        factor(hn::Set(Floats(), capped ? args.scale / args.softcap : args.scale * kLog2E)),
        cap(hn::Set(Floats(), args.softcap * kLog2E)),
        slope(hn::Zero(Floats())),
        distance(slope) {}
  HWY_INLINE void setRow(const SoftmaxUpdate& args, int row) {
    slope = hn::Set(Floats(), args.slopes == nullptr ? 0.0f : args.slopes[row] * kLog2E);
    distance = hn::Set(Floats(), static_cast<float>(1 - args.end[row]));
  }
  HWY_INLINE FloatVec operator()(FloatVec product, FloatVec slot) const {
    FloatVec score = hn::Mul(product, factor);
    if (capped) score = hn::Mul(cap, hyperbolicTangent(score));
    return hn::MulAdd(slope, hn::Add(slot, distance), score);
  }
};

// All lanes are summed whatever slots the query attends to: a masked slot adds exactly 0, so the order of the sum never
// changes. No branch depends on scores, so that the processor can overlap rows.
template <class Score>
HWY_INLINE float updateRow(float* scores, int64_t begin, int64_t end, const Score& score_of, SoftmaxState& state) {
  const Floats d;
  FloatVec score[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec slot = hn::Iota(d, static_cast<float>(v * kFloatLanes));
    score[v] = score_of(hn::LoadU(d, scores + v * kFloatLanes), slot);
  }
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  if (end < kAttentionRun) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec slot = hn::Iota(d, static_cast<float>(v * kFloatLanes));
      score[v] = hn::IfThenElse(hn::Lt(slot, hn::Set(d, static_cast<float>(end))), score[v], lowest);
    }
  }
  if (begin > 0) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec slot = hn::Iota(d, static_cast<float>(v * kFloatLanes));
      score[v] = hn::IfThenElse(hn::Lt(slot, hn::Set(d, static_cast<float>(begin))), lowest, score[v]);
    }
  }
  FloatVec max = score[0];
#pragma GCC unroll 16
  for (int v = 1; v < kVectors; ++v) max = hn::Max(max, score[v]);
  const FloatVec old_max = hn::Set(d, state.max);
  max = hn::Max(old_max, hn::MaxOfLanes(d, max));
  FloatVec sums[kSumVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec weight = powerOfTwo(hn::Sub(score[v], max));
    hn::StoreU(weight, d, scores + v * kFloatLanes);
    sums[v % kSumVectors] = hn::Add(sums[v % kSumVectors], weight);
  }
  // Compares first, because the difference of two equal infinities is NaN.
  const FloatVec same = hn::Set(d, 1.0f);
  const FloatVec correction = hn::IfThenElse(hn::Eq(max, old_max), same, powerOfTwo(hn::Sub(old_max, max)));
  for (int v = 0; v < kSumVectors; ++v) {
    float* at = state.sums + v * kFloatLanes;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, at), correction, sums[v]), d, at);
  }
  state.max = hn::GetLane(max);
  return hn::GetLane(correction);
}

template <class Score>
HWY_INLINE void updateRows(const SoftmaxUpdate& args) {
  Score score(args);
  float *scores = args.scores, *state = args.states;
  for (int r = 0; r < args.count; ++r, scores += kAttentionRun, state += args.stride) {
    if (args.begin[r] < std::min<int64_t>(args.end[r], kAttentionRun) && args.end[r] > 0) {
      score.setRow(args, r);
      args.factors[r] = updateRow(scores, args.begin[r], args.end[r], score, *reinterpret_cast<SoftmaxState*>(state));
    } else {
      std::fill(scores, scores + kAttentionRun, 0.0f);
      args.factors[r] = 1.0f;
    }
  }
}

void update(const SoftmaxUpdate& args) {
  if (args.softcap == 0 && args.slopes == nullptr) return updateRows<ScaledScore>(args);
  updateRows<ModifiedScore>(args);
}

void merge(const SoftmaxState& later, const float* later_out, SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  const float max = std::max(state.max, later.max);
  const float scale = powerOfTwo(state.max - max), later_scale = powerOfTwo(later.max - max);
  state.max = max;
  const FloatVec factor = hn::Set(d, scale), later_factor = hn::Set(d, later_scale);
  const auto sum = [&](FloatVec a, FloatVec b) { return hn::MulAdd(b, later_factor, hn::Mul(a, factor)); };
  for (int64_t i = 0; i < kSumLanes; i += kFloatLanes) {
    hn::StoreU(sum(hn::LoadU(d, state.sums + i), hn::LoadU(d, later.sums + i)), d, state.sums + i);
  }
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(sum(hn::LoadU(d, out + i), hn::LoadU(d, later_out + i)), d, out + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(sum(loadSome(out + i, left), loadSome(later_out + i, left)), left, out + i);
}

void finish(const SoftmaxState& state, const float* out, int64_t head_size, float* result) {
  const Floats d;
  FloatVec sums[kSumVectors];
  for (int v = 0; v < kSumVectors; ++v) sums[v] = hn::LoadU(d, state.sums + v * kFloatLanes);
  const FloatVec sum = hn::Set(d, sumOfLanes(sums));
  // An underflow's -0 may have become +0 by adding a masked slot; adding +0 makes both +0.
  const FloatVec zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(hn::Add(hn::Div(hn::LoadU(d, out + i), sum), zero), d, result + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(hn::Add(hn::Div(loadSome(out + i, left), sum), zero), left, result + i);
}

bool any(const std::byte* words, int64_t count, uint32_t mask) {
  const hn::RebindToUnsigned<Floats> d;
  const auto bits = hn::Set(d, mask);
  auto found = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    const auto word = hn::LoadU(d, reinterpret_cast<const uint32_t*>(words) + i);
    found = hn::Or(found, hn::VecFromMask(d, hn::Eq(hn::And(word, bits), bits)));
  }
  bool result = !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  for (; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i * 4, sizeof word);
    result |= (word & mask) == mask;
  }
  return result;
}

const OnlineSoftmaxKernels* kernels() {
  static const OnlineSoftmaxKernels table = {&start, &update, &merge, &finish, &any};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const OnlineSoftmaxKernels*> onlineSoftmaxKernels() { CHORUS_ISA_TABLE(const OnlineSoftmaxKernels*, kernels); }
}  // namespace chorus
#endif
