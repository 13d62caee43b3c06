// Bfloat16 weights by AMX. Inputs are rounded to bfloat16, and denormal inputs and weights count as zero. In every 32
// inputs the even and the odd ones are summed separately, then both sums are added to the output.
#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/cpu/amx_tiles.h"
#include "kernels/linear/dot_kernels-inl.h"

CHORUS_BEGIN_DOT_CODE
#include "kernels/linear/tile_kernels-inl.h"

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
  static void scaleColumns(const float* factors, float* y, int64_t count) { avx512::scaleColumns(factors, y, count); }
};
}  // namespace
}  // namespace chorus
CHORUS_END_DOT_CODE

namespace chorus {
const PanelKernels* bf16TileKernels() { return &tiles::kKernels<ProcessorTiles>; }
}  // namespace chorus
#endif
