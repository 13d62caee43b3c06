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

// How the inputs of a run are scaled to fixed point.
struct RunScale {
  float scale;  // NaN if an input is not finite, and then all integers are 0
  __m512 inverse;
  __mmask16 finite;

  // largest: the largest magnitudes of the run, as integers: infinity and NaN are larger than all finite numbers.
  HWY_INLINE RunScale(__m512i largest, int levels) {
    const int bits = reduce<true>(largest);
    const bool is_finite = bits < 0x7f800000;
    const float reach = std::max(__builtin_bit_cast(float, bits), kFixedLeast);
    scale = is_finite ? reach / static_cast<float>(levels) : std::numeric_limits<float>::quiet_NaN();
    inverse = _mm512_set1_ps(static_cast<float>(levels) / reach);
    finite = static_cast<__mmask16>(is_finite ? 0xffff : 0);
  }
};

// kVectors vectors of a row's inputs.
template <int kVectors>
struct RowInputs {
  __m512 values[kVectors];

  // Loads `count` inputs at x, padded with zeros.
  HWY_INLINE RowInputs(const float* x, int64_t count) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t left = std::clamp<int64_t>(count - 16 * v, 0, 16);
      values[v] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), x + (left > 0 ? 16 * v : 0));
    }
  }
  // The largest magnitudes of the inputs and of `largest`, as integers.
  HWY_INLINE __m512i largest(__m512i largest) const {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      largest = _mm512_maskz_max_epi32(0xffff, largest, _mm512_and_si512(_mm512_castps_si512(values[v]), magnitude));
    }
    return largest;
  }
};

// Converts inputs to fixed point and adds the integers to `sum`. digits: the first digit of the first input; the next
// digit of an input is digit_stride bytes later.
template <DType kType, int kDigits, int kVectors>
HWY_INLINE void storeFixed(const RowInputs<kVectors>& inputs, const RunScale& run, int8_t* digits, int64_t digit_stride,
                           __m512i& sum) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const __m512i fixed =
        _mm512_maskz_cvtps_epi32(0xffff, _mm512_maskz_mul_ps(run.finite, inputs.values[v], run.inverse));
    sum = _mm512_add_epi32(sum, fixed);
    const auto store = [&](int digit, __m512i value) __attribute__((always_inline)) {
      __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, value);
      if constexpr (kType == DType::kInt4) {
        const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        bytes = _mm_shuffle_epi8(bytes, order);
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(digits + digit * digit_stride + 16 * v), bytes);
    };
    store(kDigits - 1, fixed);
    if constexpr (kDigits > 1) {
      store(0, _mm512_maskz_srai_epi32(0xffff, _mm512_add_epi32(fixed, _mm512_set1_epi32(128)), 8));
    }
  }
}

// Packs whole rows for PerTokenForm.
template <DType kType>
void packWholeRows(const float* const* rows, int count, int64_t inputs, void* tile) {
  constexpr int kUnit = kFixedUnit<true>;
  using Digits = FixedDigits<1, kUnit>;
  using Inputs = RowInputs<kUnit / 16>;
  TokenRun* runs = tokenRuns<Digits>(tile, count, inputs);
  for (int r = 0; r < count; ++r) {
    __m512i largest = _mm512_setzero_si512();
    for (int64_t i = 0; i < inputs; i += kUnit) largest = Inputs(rows[r] + i, inputs - i).largest(largest);
    const RunScale run(largest, fixedLevels(1));
    __m512i sum = _mm512_setzero_si512();
    auto* digits = static_cast<Digits*>(tile) + r;
    for (int64_t i = 0; i < inputs; i += kUnit, digits += count) {
      storeFixed<kType, 1>(Inputs(rows[r] + i, inputs - i), run, digits->digit[0], 0, sum);
    }
    runs[r] = {run.scale, -fixedBias(kType) * reduce<false>(sum)};
  }
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
        const RowInputs<kRun / 16> values(rows[r] + std::min(at, inputs), std::max<int64_t>(inputs - at, 0));
        const RunScale scale(values.largest(_mm512_setzero_si512()), fixedLevels(Form::kDigits));
        __m512i sum = _mm512_setzero_si512();
        storeFixed<kType, Form::kDigits>(values, scale, digits[r].digit[0] + run * kRun, kFixedRun, sum);
        runs[r].scale[run] = scale.scale;
        runs[r].correction[run] = -fixedBias(kType) * reduce<false>(sum);
      }
    }
  }
}

}  // namespace chorus::avx512
HWY_POP_ATTRIBUTES
#endif
