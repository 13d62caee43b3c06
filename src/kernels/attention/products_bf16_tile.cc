// The products of attention by AMX. Queries and weights are rounded to bfloat16, and denormals on either side count as
// zero. In every 32 inputs the even and the odd ones are summed separately from zero, then both sums are added. The
// previous value of y, times the row's factor, is added last.
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
  // y = sums + factor * y for 16 columns.
  static HWY_INLINE void addRow(const std::byte* sums, float factor, float* y) {
    _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_set1_ps(factor), _mm512_loadu_ps(y), _mm512_loadu_ps(sums)));
  }
};
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
const AttentionProducts* bf16TileAttentionProducts() { return &tiles::attention::kProducts<AttentionTiles>; }
}  // namespace chorus
#endif
