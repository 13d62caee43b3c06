// Vector math and conversions shared by the CPU ops, compiled once for each instruction set.
#if defined(CHORUS_CPU_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_CPU_MATH_INL
#undef CHORUS_CPU_MATH_INL
#else
#define CHORUS_CPU_MATH_INL
#endif

#include <algorithm>

#include <hwy/highway.h>
#include "base/dtype.h"
#include "kernels/cpu/portable_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<Floats>;
constexpr int64_t kFloatLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// e^x within 2 ulp; 0 below -86.9 and infinity above 88.7. NaN stays NaN.
HWY_INLINE FloatVec exponential(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const FloatVec high = hn::Set(d, 89.0f);  // e^89 is infinity as a float
  const FloatVec limited = hn::IfThenElse(hn::Gt(x, high), high, x);
  // `large` has no bits after the binary point, so the sum is rounded to an integer n. The last bits of the sum are the
  // exponent of 2^(n - 1). It is not that of 2^n, because n may be 128 and 2^128 is not a float.
  const FloatVec large = hn::Set(d, 0x1.8p23f + 126);
  const FloatVec rounded = mulAdd(limited, hn::Set(d, 1.44269504f), large);
  const FloatVec n = hn::Sub(rounded, large);
  // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts keeps r exact.
  FloatVec r = negMulAdd(n, hn::Set(d, 0.693145752f), limited);
  r = negMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  FloatVec p = hn::Set(d, 1.0f / 5040);
  p = mulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = mulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = mulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = mulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = mulAdd(p, r, hn::Set(d, 0.5f));
  p = mulAdd(p, r, hn::Set(d, 1.0f));
  p = mulAdd(p, r, hn::Set(d, 1.0f));
  const FloatVec half_scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.9f)), hn::Mul(hn::Add(p, p), half_scale));
}

// tanh(x) within 3 ulp. NaN stays NaN.
HWY_INLINE FloatVec hyperbolicTangent(FloatVec x) {
  const Floats d;
  const FloatVec size = hn::Abs(x), one = hn::Set(d, 1.0f);
  // 1 - 2 / (e^(2 |x|) + 1) loses digits for small |x|, where an odd polynomial replaces it.
  const FloatVec large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(exponential(hn::Add(size, size)), one)));
  const FloatVec square = hn::Mul(x, x);
  FloatVec p = hn::Set(d, -0.00570498547f);
  p = mulAdd(p, square, hn::Set(d, 0.0206390861f));
  p = mulAdd(p, square, hn::Set(d, -0.0537397154f));
  p = mulAdd(p, square, hn::Set(d, 0.133314416f));
  p = mulAdd(p, square, hn::Set(d, -0.333332807f));
  const FloatVec small = mulAdd(hn::Mul(p, square), x, x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

// erf(x) within 3 ulp. NaN stays NaN.
HWY_INLINE FloatVec errorFunction(FloatVec x) {
  const Floats d;
  const FloatVec size = hn::Abs(x), one = hn::Set(d, 1.0f);
  // 1 - e^p, with a polynomial p that is nearest to the logarithm of 1 - erf between 1 and 4. From 4 on, erf is 1.
  FloatVec p = hn::Set(d, 1.8557399e-4f);
  p = mulAdd(p, size, hn::Set(d, -2.93960711e-3f));
  p = mulAdd(p, size, hn::Set(d, 0.0218053176f));
  p = mulAdd(p, size, hn::Set(d, -0.103037367f));
  p = mulAdd(p, size, hn::Set(d, -0.638225679f));
  p = mulAdd(p, size, hn::Set(d, -1.12704004f));
  p = mulAdd(p, size, hn::Set(d, -3.53719729e-4f));
  const FloatVec large = hn::Sub(one, hn::IfThenZeroElse(hn::Gt(size, hn::Set(d, 4.0f)), exponential(p)));
  // Below 1, the odd polynomial of least relative error.
  const FloatVec square = hn::Mul(x, x);
  FloatVec q = hn::Set(d, -5.63142229e-4f);
  q = mulAdd(q, square, hn::Set(d, 4.91755145e-3f));
  q = mulAdd(q, square, hn::Set(d, -0.0267113113f));
  q = mulAdd(q, square, hn::Set(d, 0.112801801f));
  q = mulAdd(q, square, hn::Set(d, -0.376123262f));
  q = mulAdd(q, square, hn::Set(d, 1.12837912f));
  return hn::IfThenElse(hn::Lt(size, one), hn::Mul(q, x), hn::CopySign(large, x));
}

// Loads kFloatLanes elements of a float type and widens them exactly.
HWY_INLINE FloatVec loadLanes(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE FloatVec loadLanes(const bf16* p) {
  const hn::Rebind<uint16_t, Floats> d16;
  const hn::RebindToUnsigned<Floats> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE FloatVec loadLanes(const f16* p) { return loadHalves(Floats(), p); }

template <typename T>
HWY_INLINE void widen(const T* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) hn::StoreU(loadLanes(from + i), Floats(), to + i);
  for (; i < count; ++i) to[i] = toFloat(from[i]);
}

// Load and store up to kFloatLanes elements; the other lanes of a load are zero. Tails thus use the same vector
// operations as whole vectors, and all elements are rounded alike.
HWY_INLINE FloatVec loadSome(const float* p, int64_t count) {
  HWY_ALIGN float lanes[kFloatLanes] = {};
  std::copy(p, p + count, lanes);
  return hn::Load(Floats(), lanes);
}
HWY_INLINE void storeSome(FloatVec v, int64_t count, float* p) {
  HWY_ALIGN float lanes[kFloatLanes];
  hn::Store(v, Floats(), lanes);
  std::copy(lanes, lanes + count, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
