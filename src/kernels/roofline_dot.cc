// The measured loop of bfloat16 dot products (AVX-512 BF16), written with intrinsics.
#if defined(__x86_64__)
#include <immintrin.h>

#include <hwy/base.h>
#include "kernels/roofline_kernels.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
namespace chorus {
namespace {

constexpr int kChains = 12;

float dotChains(int64_t rounds, float start) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(start + static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.5f);
  const __m512bh a = _mm512_cvtne2ps_pbh(factor, factor);
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(start), _mm512_set1_ps(start));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  __m512 total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sums[i]);
  float lanes[16];
  _mm512_storeu_ps(lanes, total);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
ProductLoop dotProductLoop() { return {&dotChains, 2.0 * kChains * 32}; }
}  // namespace chorus
#endif
