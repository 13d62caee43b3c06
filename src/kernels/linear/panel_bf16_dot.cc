// Bfloat16 weights by AVX-512 BF16 dot products. Inputs are rounded to bfloat16, and denormal inputs and weights count
// as zero. Each output is one chain over ascending input pairs.
#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/linear/dot_kernels-inl.h"

CHORUS_BEGIN_DOT_CODE
namespace chorus {
namespace {

struct Bfloat16Pairs {
  static constexpr int64_t kInputsPerStride = 2;
  static HWY_INLINE const std::byte* at(const std::byte* panel, int64_t stride, int64_t i) {
    return panel + i / 2 * stride;
  }
  static HWY_INLINE __m512bh load(const std::byte* panel, int64_t stride, int64_t i) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(at(panel, stride, i)));
  }
};
}  // namespace

const PanelKernels* bf16DotKernels() { return dot::formatKernels<Bfloat16Pairs>(); }

}  // namespace chorus
CHORUS_END_DOT_CODE
#endif
