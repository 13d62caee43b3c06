// The products of attention by AMX: queries and weights are rounded to bfloat16, denormals of either side count as
// zero. Of every 32 inputs the even and the odd ones are summed apart, then both are added up, from zero; a row's sum
// of before, times its factor, comes last.
#include "kernels/attention/products.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/linear/panel_kernels.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq")
#include "kernels/attention/products_tile-inl.h"

namespace chorus {
namespace {

struct AttentionTiles : amx::Tiles {
  static void pack(const float* const* rows, int count, int64_t inputs, void* dst) {
    packRoundedAttentionTile(rows, count, inputs, dst);
  }
  // y = sums + factor y of 16 columns; no factor: sums.
  static HWY_INLINE void addRow(const std::byte* sums, const float* factor, float* y) {
    __m512 sum = _mm512_loadu_ps(sums);
    if (factor != nullptr) sum = _mm512_fmadd_ps(_mm512_set1_ps(*factor), _mm512_loadu_ps(y), sum);
    _mm512_storeu_ps(y, sum);
  }
};
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
const AttentionProducts* bf16TileAttentionProducts() { return &tiles::attention::kProducts<AttentionTiles>; }
}  // namespace chorus
#endif
