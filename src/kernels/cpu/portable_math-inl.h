// Operations on floats whose bits depend on the instruction set in Highway; these give the same bits on every set.
// Compiled once for each instruction set.
#if defined(CHORUS_CPU_PORTABLE_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_CPU_PORTABLE_MATH_INL
#undef CHORUS_CPU_PORTABLE_MATH_INL
#else
#define CHORUS_CPU_PORTABLE_MATH_INL
#endif

#include <bit>
#include <cmath>
#include <cstdint>

#include <hwy/highway.h>
#if !HWY_NATIVE_FMA && defined(__SSE2__)
#include <emmintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// mulAdd(a, b, c) is a * b + c with one rounding. mulAddTile(x, stride, w, sum) is
//   sum[r][v] = x[r * stride] * w[v] + sum[r][v]
// for every row r and vector v, each with one rounding.
#if HWY_NATIVE_FMA

template <class V>
HWY_INLINE V mulAdd(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}

template <class V, int kRows, int kCount>
HWY_INLINE void mulAddTile(const float* x, int64_t stride, const V (&w)[kCount], V (&sum)[kRows][kCount]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(hn::DFromV<V>(), x[r * stride]);
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) sum[r][v] = hn::MulAdd(factor, w[v], sum[r][v]);
  }
}

#else

// Without an instruction for it, Highway's MulAdd rounds twice and the C library's fmaf is slow. In doubles, the
// product is exact and the sum is rounded to 53 bits. Rounding this sum to a float can be wrong only if it lies halfway
// between two floats and is not exact. For normal floats, halfway means that its lower 29 bits are 0x10000000.
// Subnormal floats have fewer bits, and sums just below 2^-126 may round up to it, so results up to 2^-126 count as
// halfway too. A result of 0 does not: such a sum is exact. Sums of few bfloat16 products are often halfway and nearly
// always exact, so the test for exactness comes before fmaf.

// The rounding error of `sum`, which is a + b in doubles (Knuth's TwoSum): 0 if it is exact. D: double or a vector.
template <class D>
HWY_INLINE D roundingError(D a, D b, D sum) {
  const D of_b = sum - a;
  return (a - (sum - of_b)) + (b - of_b);
}

HWY_INLINE float mulAdd(float a, float b, float c) {
  const double product = double{a} * double{b};
  const double sum = product + double{c};
  const auto rounded = static_cast<float>(sum);
  const bool halfway = (std::bit_cast<uint64_t>(sum) & 0x1fffffff) == 0x10000000;
  const bool subnormal = std::abs(rounded) <= 0x1p-126f && rounded != 0;
  if ((halfway || subnormal) && roundingError(product, double{c}, sum) != 0) [[unlikely]]
    return std::fmaf(a, b, c);
  return rounded;
}

template <class V>
HWY_INLINE V mulAdd(V a, V b, V c) {
  const hn::DFromV<V> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  HWY_ALIGN float factor[kLanes], other[kLanes], sum[kLanes];
  hn::Store(a, d, factor);
  hn::Store(b, d, other);
  hn::Store(c, d, sum);
  for (int i = 0; i < kLanes; ++i) sum[i] = mulAdd(factor[i], other[i], sum[i]);
  return hn::Load(d, sum);
}

// mulAddTile of floats in memory. w: [kCount]; sum: [kRows, kCount].
template <int kRows, int kCount>
HWY_INLINE void mulAddFloats(const float* x, int64_t stride, const float* w, float* sum) {
#ifdef __SSE2__
  // Four at a time, with one test for them. GCC makes no good vectors of the loop below.
  static_assert(kCount % 4 == 0);
  const auto upper = [](__m128 four) HWY_ATTR { return _mm_movehl_ps(four, four); };
  const auto lastBits = [](__m128d low, __m128d high) HWY_ATTR {  // 32 bits of each double
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), _MM_SHUFFLE(2, 0, 2, 0)));
  };
  for (int i = 0; i < kCount; i += 4) {
    const __m128 b = _mm_loadu_ps(w + i);
    const __m128d low_b = _mm_cvtps_pd(b), high_b = _mm_cvtps_pd(upper(b));
    for (int r = 0; r < kRows; ++r) {
      float* to = sum + r * kCount + i;
      const __m128 c = _mm_loadu_ps(to);
      const __m128d a = _mm_set1_pd(x[r * stride]);
      const __m128d low_c = _mm_cvtps_pd(c), high_c = _mm_cvtps_pd(upper(c));
      const __m128d low_product = _mm_mul_pd(a, low_b), high_product = _mm_mul_pd(a, high_b);
      const __m128d low = _mm_add_pd(low_product, low_c), high = _mm_add_pd(high_product, high_c);
      const __m128 rounded = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
      const __m128i last_bits = lastBits(low, high);
      const __m128i halfway =
          _mm_cmpeq_epi32(_mm_and_si128(last_bits, _mm_set1_epi32(0x1fffffff)), _mm_set1_epi32(0x10000000));
      // bits + bits drops the sign. It is 0 for zero and 2 to 0x01000000 for magnitudes up to 2^-126. Adding 0x7fffffff
      // makes zero the greatest signed integer and these magnitudes the least ones.
      const __m128i bits = _mm_castps_si128(rounded);
      const __m128i magnitude = _mm_add_epi32(_mm_add_epi32(bits, bits), _mm_set1_epi32(0x7fffffff));
      const __m128i subnormal = _mm_cmplt_epi32(magnitude, _mm_set1_epi32(static_cast<int>(0x81000000)));
      const __m128i doubtful = _mm_or_si128(halfway, subnormal);
      if (_mm_movemask_epi8(doubtful) != 0) [[unlikely]] {
        const __m128d zero = _mm_setzero_pd();
        const __m128i inexact = lastBits(_mm_cmpneq_pd(roundingError(low_product, low_c, low), zero),
                                         _mm_cmpneq_pd(roundingError(high_product, high_c, high), zero));
        if (_mm_movemask_epi8(_mm_and_si128(doubtful, inexact)) != 0) {
          for (int k = 0; k < 4; ++k) to[k] = mulAdd(x[r * stride], w[i + k], to[k]);
          continue;
        }
      }
      _mm_storeu_ps(to, rounded);
    }
  }
#else
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCount; ++i) sum[r * kCount + i] = mulAdd(x[r * stride], w[i], sum[r * kCount + i]);
  }
#endif
}

template <class V, int kRows, int kCount>
HWY_INLINE void mulAddTile(const float* x, int64_t stride, const V (&w)[kCount], V (&sum)[kRows][kCount]) {
  // The vectors of Highway's sets without a multiply-add are arrays of floats.
  constexpr int kFloats = kCount * static_cast<int>(hn::MaxLanes(hn::DFromV<V>()));
  static_assert(sizeof(w) == kFloats * sizeof(float));
  mulAddFloats<kRows, kFloats>(x, stride, reinterpret_cast<const float*>(w), reinterpret_cast<float*>(sum));
}

#endif

// c - a * b with one rounding.
template <class V>
HWY_INLINE V negMulAdd(V a, V b, V c) {
  return mulAdd(hn::Neg(a), b, c);
}

// Loads the float16 numbers at p, as many as d has lanes, and widens them exactly; infinity and NaN stay what they are.
template <class D>
HWY_INLINE hn::Vec<D> loadHalves(D d, const void* p) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // PromoteTo of these targets has branches, which take most of the time of a product, and makes numbers of infinity
  // and NaN. The compiler can make vectors of this form. The shifted bits are the value times 2^-112, also for
  // subnormals; for infinity and NaN, all bits of the exponent are set.
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, static_cast<const uint16_t*>(p)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffu));
  const auto finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto is_special = hn::ShiftRight<31>(hn::Sub(hn::Set(d32, 0x7bffu), magnitude));  // 1 or 0
  const auto exponent = hn::And(hn::Sub(hn::Zero(d32), is_special), hn::Set(d32, 0x7f800000u));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(d32, finite), exponent), sign));
#else
  const hn::Rebind<hwy::float16_t, D> halves;
  return hn::PromoteTo(d, hn::LoadU(halves, static_cast<const hwy::float16_t*>(p)));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
