// Packs rows of floats into tiles of fixed point (fixed_point.h), by AVX-512.
#pragma once

#if defined(__x86_64__)
#include <limits>

#include "kernels/linear/avx512_panels-inl.h"
#include "kernels/linear/fixed_point.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq")
namespace chorus::avx512 {

// The largest of sixteen lanes, or their sum. Masked intrinsics are used here and below because the plain ones start
// from an undefined value, about which GCC 12 warns.
template <bool kLargest>
HWY_INLINE __m512i combine(__m512i a, __m512i b) {
  return kLargest ? _mm512_maskz_max_epi32(0xffff, a, b) : _mm512_add_epi32(a, b);
}
template <bool kLargest>
HWY_INLINE int reduce(__m512i lanes) {
  lanes = combine<kLargest>(lanes, _mm512_maskz_shuffle_i64x2(0xff, lanes, lanes, 0x4e));
  lanes = combine<kLargest>(lanes, _mm512_maskz_shuffle_i64x2(0xff, lanes, lanes, 0xb1));
  lanes = combine<kLargest>(lanes, _mm512_maskz_shuffle_epi32(0xffff, lanes, _MM_PERM_BADC));
  lanes = combine<kLargest>(lanes, _mm512_maskz_shuffle_epi32(0xffff, lanes, _MM_PERM_CDAB));
  return static_cast<int>(lanes[0]);
}

// Converts a run of `count` inputs at x, padded with zeros to the length of a run, to fixed point: its scale and
// correction, and its digits, those of `digits` from input `first` on.
template <DType kType, class Form>
HWY_INLINE void packRun(const float* x, int64_t count, FixedDigits<Form::kDigits>& digits, int first, float& scale,
                        int32_t& correction) {
  constexpr int kVectors = Form::kRun / 16, kDigits = Form::kDigits, kLevels = fixedLevels(kDigits);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512 values[kVectors];
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = std::clamp<int64_t>(count - 16 * v, 0, 16);
    values[v] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + (left > 0 ? 16 * v : 0));
    // Compared as integers, infinity and NaN are larger than all finite numbers.
    largest = _mm512_maskz_max_epi32(0xffff, largest, _mm512_and_si512(_mm512_castps_si512(values[v]), magnitude));
  }
  const int bits = reduce<true>(largest);
  const bool finite = bits < 0x7f800000;
  const float reach = std::max(__builtin_bit_cast(float, bits), kFixedLeast);
  scale = finite ? reach / kLevels : std::numeric_limits<float>::quiet_NaN();
  const __m512 inverse = _mm512_set1_ps(kLevels / reach);
  const auto counted = static_cast<__mmask16>(finite ? 0xffff : 0);
  __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const __m512i fixed = _mm512_maskz_cvtps_epi32(0xffff, _mm512_maskz_mul_ps(counted, values[v], inverse));
    sum = _mm512_add_epi32(sum, fixed);
    const auto store = [&](int digit, __m512i value) __attribute__((always_inline)) {
      __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, value);
      if constexpr (kType == DType::kInt4) {
        const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        bytes = _mm_shuffle_epi8(bytes, order);
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(digits.digit[digit] + first + 16 * v), bytes);
    };
    store(kDigits - 1, fixed);
    if constexpr (kDigits > 1) {
      store(0, _mm512_maskz_srai_epi32(0xffff, _mm512_add_epi32(fixed, _mm512_set1_epi32(128)), 8));
    }
  }
  correction = -fixedBias(kType) * reduce<false>(sum);
}

// PanelKernels::pack for fixed point. Form: the FixedForm of the weights' format.
template <DType kType, class Form>
void packFixed(const float* const* rows, int count, int64_t inputs, void* tile) {
  using Digits = FixedDigits<Form::kDigits>;
  constexpr int64_t kPackAhead = 2 * kFixedRun;
  constexpr int kRun = Form::kRun;
  auto* dst = static_cast<std::byte*>(tile);
  for (int64_t i = 0; i < inputs; i += kFixedRun, dst += count * kFixedBytes<Digits>) {
    auto* digits = reinterpret_cast<Digits*>(dst);
    auto* runs = reinterpret_cast<FixedRuns*>(digits + count);
    for (int r = 0; r < count; ++r) {
      // The hardware prefetchers do not follow this many rows.
      for (int64_t line = 0; count > 8 && line < kFixedRun; line += 16) {
        _mm_prefetch(rows[r] + i + kPackAhead + line, _MM_HINT_T0);
      }
#pragma GCC unroll 4
      for (int run = 0; run < kFixedRun / kRun; ++run) {
        const int64_t at = i + run * kRun;
        packRun<kType, Form>(rows[r] + std::min(at, inputs), std::max<int64_t>(inputs - at, 0), digits[r], run * kRun,
                             runs[r].scale[run], runs[r].correction[run]);
      }
    }
  }
}

}  // namespace chorus::avx512
HWY_POP_ATTRIBUTES
#endif
