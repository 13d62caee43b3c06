// The processor's tile registers. The including file is compiled for every machine: what stands here is called where
// there are such registers.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include <hwy/base.h>

// By assembly: GCC's intrinsics take no template's constant for a register's number.
namespace chorus::amx {

// LDTILECFG: 64 bytes, palette 1. Every register becomes zero.
inline void configure(const void* palette) {
  struct Bytes {
    char bytes[64];
  };
  __asm__ volatile("ldtilecfg %0" ::"m"(*static_cast<const Bytes*>(palette)));
}
template <int kTile>
HWY_INLINE void load(const void* memory, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void store(void* memory, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// sums[m][n] += rows[m] . weights[n], bfloat16 pairs.
template <int kSums, int kRows, int kWeights>
HWY_INLINE void multiplyBf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
}
// sums[m][n] += rows[m] . weights[n], of rows signed and of weights unsigned integers of 8 bits, four in a lane.
template <int kSums, int kRows, int kWeights>
HWY_INLINE void multiplyInt8() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
}
// Makes the calling thread's registers fit the palette, unless they do. A palette is known by its address.
void configureOnce(const void* palette);

}  // namespace chorus::amx
#endif
