// Code that the panel kernels by AVX-512 intrinsics share. It uses no later instruction set: the linker keeps one
// file's copy of an inline function, and that copy must run wherever any of these kernels runs.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#include <hwy/base.h>
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq")
namespace chorus::avx512 {

// The accumulators of kRows rows and kPanels panels, loaded from and stored to y from column `col` on.
template <int kRows, int kPanels>
struct Accumulators {
  __m512 sum[kRows][kPanels];

  static bool whole(const PanelArgs& args, int64_t col) {
    return args.skip <= col && args.cols - col >= kPanels * kPanelCols;
  }
  static __mmask16 columns(const PanelArgs& args, int64_t col) {
    const int64_t from = std::clamp<int64_t>(args.skip - col, 0, kPanelCols);
    const int64_t to = std::clamp<int64_t>(args.cols - col, from, kPanelCols);
    return static_cast<__mmask16>((1u << to) - (1u << from));
  }
  HWY_INLINE void load(const PanelArgs& args, int64_t col) {
    if (whole(args, col)) {
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_loadu_ps(args.y[r] + col + p * kPanelCols);
      }
      return;
    }
    for (int p = 0; p < kPanels; ++p, col += kPanelCols) {
      const __mmask16 mask = columns(args, col);
      for (int r = 0; r < kRows; ++r) sum[r][p] = _mm512_maskz_loadu_ps(mask, args.y[r] + col);
    }
  }
  HWY_INLINE void store(const PanelArgs& args, int64_t col) const {
    if (whole(args, col)) {
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) _mm512_storeu_ps(args.y[r] + col + p * kPanelCols, sum[r][p]);
      }
      return;
    }
    for (int p = 0; p < kPanels; ++p, col += kPanelCols) {
      const __mmask16 mask = columns(args, col);
      for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(args.y[r] + col, mask, sum[r][p]);
    }
  }
};

// Loads the scales of a panel's 16 columns as floats.
HWY_INLINE __m512 loadScales(const std::byte* at, DType dtype) {
  if (dtype == DType::kFloat32) return _mm512_loadu_ps(at);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if (dtype == DType::kFloat16) return _mm512_maskz_cvtph_ps(0xffff, halves);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
}

// Writes sixteen floats. non_temporal: by a non-temporal store, for which y must be aligned to 64 bytes.
HWY_INLINE void writeLine(const std::byte* line, float* y, bool non_temporal) {
  if (non_temporal) {
    _mm512_stream_ps(y, _mm512_load_ps(line));
  } else {
    _mm512_storeu_ps(y, _mm512_load_ps(line));
  }
}
// Non-temporal stores are not ordered with the pool's synchronisation. The fence makes them visible to the threads that
// read y next.
HWY_INLINE void finishWrites() { _mm_sfence(); }

inline void scaleColumns(const float* factors, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    const auto mask = static_cast<__mmask16>((1u << std::min<int64_t>(count - i, 16)) - 1);
    const __m512 product = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, y + i), _mm512_maskz_loadu_ps(mask, factors + i));
    _mm512_mask_storeu_ps(y + i, mask, product);
  }
}

}  // namespace chorus::avx512
HWY_POP_ATTRIBUTES
#endif
