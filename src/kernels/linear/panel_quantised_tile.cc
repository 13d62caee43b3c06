// int8 and int4 weights by AMX, with fixed-point inputs.
#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/cpu/amx_tiles.h"
#include "kernels/linear/fixed_pack-inl.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq")
#include "kernels/linear/tile_quantised-inl.h"

namespace chorus {
namespace {

struct QuantisedTiles : amx::Tiles {
  // Separates the even and the odd nibbles of sixteen lanes, one nibble per byte.
  static HWY_INLINE void nibbles(const std::byte* lanes, std::byte* even, std::byte* odd) {
    const __m512i all = _mm512_loadu_si512(lanes), mask = _mm512_set1_epi32(0x0f0f0f0f);
    _mm512_storeu_si512(even, _mm512_and_si512(all, mask));
    _mm512_storeu_si512(odd, _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, all, 4), mask));
  }
  static HWY_INLINE void addRun(const std::byte* high, const std::byte* low, int32_t correction, float scale,
                                const std::byte* weight_scales, DType scale_dtype, float* total) {
    const __m512i sum = _mm512_add_epi32(_mm512_maskz_slli_epi32(0xffff, _mm512_loadu_si512(high), 8),
                                         _mm512_add_epi32(_mm512_loadu_si512(low), _mm512_set1_epi32(correction)));
    const __m512 value = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), _mm512_set1_ps(scale));
    const __m512 weights = avx512::loadScales(weight_scales, scale_dtype);
    _mm512_storeu_ps(total, _mm512_fmadd_ps(weights, value, _mm512_loadu_ps(total)));
  }
  template <DType kType, int kRun>
  static void packFixed(const float* const* rows, int count, int64_t inputs, void* tile) {
    avx512::packFixed<kType, kRun>(rows, count, inputs, tile);
  }
  static void scaleColumns(const float* factors, float* y, int64_t count) { avx512::scaleColumns(factors, y, count); }
};
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
const PanelKernels* int8TileKernels(int64_t run) {
  return tiles::quantised::kernelsOf<QuantisedTiles, DType::kInt8>(run);
}
const PanelKernels* int4TileKernels(int64_t run) {
  return tiles::quantised::kernelsOf<QuantisedTiles, DType::kInt4>(run);
}
}  // namespace chorus
#endif
