// The measured loop of integer dot products (AVX-512 VNNI), written with intrinsics.
#if defined(__x86_64__)
#include <immintrin.h>

#include <hwy/base.h>
#include "kernels/roofline_kernels.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace chorus {
namespace {

constexpr int kChains = 12;

float vnniChains(int64_t rounds, float start) {
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(static_cast<int>(start) + i);
  const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(static_cast<int>(start));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_epi32(total, sums[i]);
  int lanes[16];
  _mm512_storeu_si512(lanes, total);
  float sum = 0;
  for (const int lane : lanes) sum += static_cast<float>(lane);
  return sum;
}
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
// An instruction makes 64 products. Two of them make one product with a 16-bit input, which has two 8-bit digits.
ProductLoop vnniProductLoop() { return {&vnniChains, 2.0 * kChains * 32}; }
}  // namespace chorus
#endif
