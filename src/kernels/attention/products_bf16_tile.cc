// The products of attention by AMX. Queries and weights are rounded to bfloat16, and denormals on either side count as
// zero. In every 32 inputs the even and the odd ones are summed separately from zero, then both sums are added, and
// their sum is added to the output.
#include "kernels/attention/products.h"

#if defined(__x86_64__)
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
};
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
const AttentionProducts* bf16TileAttentionProducts() { return &tiles::attention::kProducts<AttentionTiles>; }
}  // namespace chorus
#endif
