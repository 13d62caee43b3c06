// Bfloat16 weights by AMX. Inputs are rounded to bfloat16, and denormal inputs and weights count as zero. In every 32
// inputs the even and the odd ones are summed separately, then both sums are added to the output.
#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/cpu/amx_tiles.h"
#include "kernels/linear/dot_kernels-inl.h"
#include "kernels/linear/panel_layout.h"

CHORUS_BEGIN_DOT_CODE
#include "kernels/linear/tile_block-inl.h"

namespace chorus {
namespace {

struct ProcessorTiles : amx::Tiles {
  // Rounds up to 32 floats to bfloat16 and pads them with zeros to a multiple of 4.
  static HWY_INLINE void round(const float* row, int64_t count, std::byte* dst) {
    const auto low = static_cast<__mmask16>((1u << std::min<int64_t>(count, 16)) - 1);
    const auto high = static_cast<__mmask16>((1u << std::max<int64_t>(count - 16, 0)) - 1);
    const __m512 second = high == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(high, row + 16);
    const auto quads = static_cast<__mmask8>((1u << (count + 3) / 4) - 1);
    _mm512_mask_storeu_epi64(dst, quads, dot::roundPair(_mm512_maskz_loadu_ps(low, row), second));
  }
  // Converts `count` bfloat16 values to floats; count is even.
  static HWY_INLINE void widen(const std::byte* values, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += 16) {
      const auto some = static_cast<__mmask16>((1u << std::min<int64_t>(16, count - i)) - 1);
      const __m512i halves = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(some, values + 2 * i));
      _mm512_mask_storeu_ps(to + i, some, _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, halves, 16)));
    }
  }
  // The product of one row by AVX-512, with the bits of multiplyBf16. x: floats with bfloat16 values; an odd number of
  // inputs is followed by a zero. y: the row's first column.
  static void multiplyRow(const PanelArgs& args, const float* x, float* y) {
    // TDPBF16PS takes denormal operands as zeros and flushes denormal results to zero.
    const unsigned state = _mm_getcsr();
    constexpr unsigned kDenormalsAreZeros = 0x8040;
    _mm_setcsr(state | kDenormalsAreZeros);
    // Loads stay after the first change of the state and stores before the second, and so do the products between them.
    __asm__ volatile("" ::: "memory");
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const int64_t pairs = (args.inputs + 1) / 2, stride = args.input_stride;
    const auto* panel = static_cast<const std::byte*>(args.panels);
    for (int64_t col = 0; col < args.cols; col += kPanelCols, panel += args.panel_stride) {
      constexpr int64_t kAhead = 2048;  // prefetch distance in bytes
      const __mmask16 mask = avx512::Accumulators<1, 1>::columns(args, col);
      __m512 sum = args.accumulate ? _mm512_maskz_loadu_ps(mask, y + col) : _mm512_setzero_ps();
      for (int64_t first = 0; first < pairs; first += tiles::kRegisterRows) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        const int64_t end = std::min(pairs, first + tiles::kRegisterRows);
#pragma GCC unroll 8
        for (int64_t pair = first; pair < end; ++pair) {
          _mm_prefetch(panel + pair * stride + kAhead, _MM_HINT_T0);
          const __m512i w = _mm512_loadu_si512(panel + pair * stride);
          even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, w, 16)),
                                 _mm512_set1_ps(x[2 * pair]), even);
          odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(w, upper)), _mm512_set1_ps(x[2 * pair + 1]), odd);
        }
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
      }
      _mm512_mask_storeu_ps(y + col, mask, sum);
    }
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(state);
  }
  static HWY_INLINE void writeLine(const std::byte* line, float* y, bool non_temporal) {
    avx512::writeLine(line, y, non_temporal);
  }
  static HWY_INLINE void finishWrites() { avx512::finishWrites(); }
  static void scaleColumns(const float* factors, float* y, int64_t count) { avx512::scaleColumns(factors, y, count); }
};
}  // namespace
}  // namespace chorus
CHORUS_END_DOT_CODE

namespace chorus {
const PanelKernels* bf16TileKernels() { return &tiles::kKernels<ProcessorTiles>; }
}  // namespace chorus
#endif
