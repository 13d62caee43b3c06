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

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<Floats>;
constexpr int64_t kFloatLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// e^x within 2 ulp; 0 below -87.3 and infinity above 88.7. NaN stays NaN.
HWY_INLINE FloatVec exponential(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const FloatVec low = hn::Set(d, -87.33654f);
  const FloatVec high = hn::Set(d, 88.72283f);
  const auto too_low = hn::Lt(x, low);
  const auto too_high = hn::Gt(x, high);
  const FloatVec clamped = hn::IfThenElse(too_low, low, hn::IfThenElse(too_high, high, x));
  // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts keeps r exact.
  const FloatVec n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  FloatVec r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  FloatVec p = hn::Set(d, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // 2^n is split into two factors, because n can be 128 and 2^128 is not a float.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const FloatVec scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const FloatVec scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  const FloatVec y = hn::Mul(hn::Mul(p, scale1), scale2);
  const FloatVec infinity = hn::BitCast(d, hn::Set(di, 0x7f800000));
  return hn::IfThenElse(too_low, hn::Zero(d), hn::IfThenElse(too_high, infinity, hn::IfThenElse(hn::IsNaN(x), x, y)));
}

// tanh(x) within 3 ulp. NaN stays NaN.
HWY_INLINE FloatVec hyperbolicTangent(FloatVec x) {
  const Floats d;
  const FloatVec size = hn::Abs(x), one = hn::Set(d, 1.0f);
  // 1 - 2 / (e^(2 |x|) + 1) loses digits for small |x|, where an odd polynomial replaces it.
  const FloatVec large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(exponential(hn::Add(size, size)), one)));
  const FloatVec square = hn::Mul(x, x);
  FloatVec p = hn::Set(d, -0.00570498547f);
  p = hn::MulAdd(p, square, hn::Set(d, 0.0206390861f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.0537397154f));
  p = hn::MulAdd(p, square, hn::Set(d, 0.133314416f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.333332807f));
  const FloatVec small = hn::MulAdd(hn::Mul(p, square), x, x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

// Loads kFloatLanes elements of a float type and widens them exactly.
HWY_INLINE FloatVec loadLanes(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE FloatVec loadLanes(const bf16* p) {
  const hn::Rebind<uint16_t, Floats> d16;
  const hn::RebindToUnsigned<Floats> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE FloatVec loadLanes(const f16* p) {
  const hn::Rebind<hwy::float16_t, Floats> d16;
  return hn::PromoteTo(Floats(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

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
