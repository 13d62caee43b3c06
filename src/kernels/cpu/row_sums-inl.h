// Sums over one row, in an order that depends only on the row's length, for the norms.
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

// Calls add(c, sum) for each vector of columns, with one of four running sums, and returns the total of the sums.
template <class Add>
HWY_INLINE float sumOfColumns(int64_t cols, Add&& add) {
  const Floats d;
  FloatVec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t c = 0; c < cols; c += 4 * kFloatLanes) {
    for (int64_t i = 0; i < 4 && c + i * kFloatLanes < cols; ++i) sums[i] = add(c + i * kFloatLanes, sums[i]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
