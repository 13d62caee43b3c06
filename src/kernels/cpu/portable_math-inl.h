// Operations on floats that Highway leaves to the instruction set, with the same bits on all of them. Compiled once for
// each instruction set.
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

#if HWY_NATIVE_FMA

// a * b + c with one rounding.
template <class V>
HWY_INLINE V mulAdd(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}

// sum[r][v] = x[r * stride] * w[v] + sum[r][v], each with one rounding.
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

// Highway's MulAdd rounds twice where the processor has no such instruction, and the C library's fmaf is slow there.
// Computed in doubles, the product is exact and the sum is rounded to 53 bits. Rounding it again, to 24 bits, gives
// what one rounding gives unless the first one ended halfway between two floats. The lower 29 bits of the double show
// that, unless the float is subnormal and has fewer bits.
HWY_INLINE float mulAdd(float a, float b, float c) {
  const double sum = double{a} * double{b} + double{c};
  const auto rounded = static_cast<float>(sum);
  const bool halfway = (std::bit_cast<uint64_t>(sum) & 0x1fffffff) == 0x10000000;
  const bool subnormal = std::abs(rounded) <= 0x1p-126f && rounded != 0;
  if (halfway || subnormal) [[unlikely]]
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

#ifdef __SSE2__
// mulAdd of kRows numbers of `factor` and four of b each, with one test for all. Returns whether c has the results; if
// not, c is unchanged. c: kRows rows of kCount floats.
template <int kRows, int kCount>
HWY_INLINE bool mulAddFours(const float* factor, int64_t stride, const float* b, float* c) {
  __m128 rounded[kRows][kCount / 4];
  __m128i doubtful = _mm_setzero_si128();
  const auto upper = [](__m128 four) HWY_ATTR { return _mm_movehl_ps(four, four); };
  for (int i = 0; i < kCount / 4; ++i) {
    const __m128 four = _mm_loadu_ps(b + 4 * i);
    const __m128d low_b = _mm_cvtps_pd(four), high_b = _mm_cvtps_pd(upper(four));
    for (int r = 0; r < kRows; ++r) {
      const __m128d a = _mm_set1_pd(factor[r * stride]);
      const __m128 before = _mm_loadu_ps(c + r * kCount + 4 * i);
      const __m128d low = _mm_add_pd(_mm_mul_pd(a, low_b), _mm_cvtps_pd(before));
      const __m128d high = _mm_add_pd(_mm_mul_pd(a, high_b), _mm_cvtps_pd(upper(before)));
      const __m128 sum = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
      const __m128 last_bits = _mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), _MM_SHUFFLE(2, 0, 2, 0));
      const __m128i halfway = _mm_cmpeq_epi32(_mm_and_si128(_mm_castps_si128(last_bits), _mm_set1_epi32(0x1fffffff)),
                                              _mm_set1_epi32(0x10000000));
      // Twice the bits of a float are its magnitude as an integer. The addition makes numbers from 1 to 0x01000000,
      // which is 2^-126, the least integers.
      const __m128i bits = _mm_castps_si128(sum);
      const __m128i magnitude = _mm_add_epi32(_mm_add_epi32(bits, bits), _mm_set1_epi32(0x7fffffff));
      const __m128i subnormal = _mm_cmplt_epi32(magnitude, _mm_set1_epi32(static_cast<int>(0x81000000)));
      doubtful = _mm_or_si128(doubtful, _mm_or_si128(halfway, subnormal));
      rounded[r][i] = sum;
    }
  }
  if (_mm_movemask_epi8(doubtful) != 0) [[unlikely]]
    return false;
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCount / 4; ++i) _mm_storeu_ps(c + r * kCount + 4 * i, rounded[r][i]);
  }
  return true;
}
#endif

template <class V, int kRows, int kCount>
HWY_INLINE void mulAddTile(const float* x, int64_t stride, const V (&w)[kCount], V (&sum)[kRows][kCount]) {
#ifdef __SSE2__
  if constexpr (sizeof(V) == sizeof(float) && kCount % 4 == 0) {
    if (mulAddFours<kRows, kCount>(x, stride, &w[0].raw, &sum[0][0].raw)) [[likely]]
      return;
  }
#endif
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kCount; ++v) sum[r][v] = mulAdd(hn::Set(hn::DFromV<V>(), x[r * stride]), w[v], sum[r][v]);
  }
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
