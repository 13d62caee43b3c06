// Sums over one row, in an order that depends only on the row's length, for the norms and the softmax.
#if defined(CHORUS_CPU_ROW_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_CPU_ROW_SUMS_INL
#undef CHORUS_CPU_ROW_SUMS_INL
#else
#define CHORUS_CPU_ROW_SUMS_INL
#endif

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {

// Up to kFloatLanes elements from column c on; lanes past `cols` are zero.
HWY_INLINE FloatVec loadColumns(const float* row, int64_t c, int64_t cols) {
  return c + kFloatLanes <= cols ? hn::LoadU(Floats(), row + c) : loadSome(row + c, cols - c);
}
HWY_INLINE void storeColumns(FloatVec v, float* row, int64_t c, int64_t cols) {
  if (c + kFloatLanes <= cols) {
    hn::StoreU(v, Floats(), row + c);
  } else {
    storeSome(v, cols - c, row + c);
  }
}

// Every instruction set divides a sum among 16 lanes, those of the widest set, so that all add in the same order.
constexpr int64_t kSumLanes = 16;
constexpr int64_t kSumVectors = kSumLanes / kFloatLanes;

// The sum of the lanes of kSumVectors vectors: the upper half of the lanes is added to the lower one until one is left.
HWY_INLINE float sumOfLanes(const FloatVec (&vectors)[kSumVectors]) {
  HWY_ALIGN float lanes[kSumLanes];
  for (int64_t v = 0; v < kSumVectors; ++v) hn::Store(vectors[v], Floats(), lanes + v * kFloatLanes);
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[half + i];
  }
  return lanes[0];
}

// Calls add(c, sum) for each vector of columns, with one of four running sums of kSumLanes lanes, and returns the total
// of the sums.
template <class Add>
HWY_INLINE float sumOfColumns(int64_t cols, Add&& add) {
  constexpr int64_t kVectors = 4 * kSumVectors, kBlock = 4 * kSumLanes;
  FloatVec sums[kVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(Floats());
  int64_t c = 0;
  for (; c + kBlock <= cols; c += kBlock) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kVectors; ++v) sums[v] = add(c + v * kFloatLanes, sums[v]);
  }
#pragma GCC unroll 16
  for (int64_t v = 0; v < kVectors; ++v) {
    if (c + v * kFloatLanes < cols) sums[v] = add(c + v * kFloatLanes, sums[v]);
  }
  FloatVec total[kSumVectors];
  for (int64_t v = 0; v < kSumVectors; ++v) {
    total[v] =
        hn::Add(hn::Add(sums[v], sums[kSumVectors + v]), hn::Add(sums[2 * kSumVectors + v], sums[3 * kSumVectors + v]));
  }
  return sumOfLanes(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
