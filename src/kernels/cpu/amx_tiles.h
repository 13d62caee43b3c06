// The processor's tile registers. The including file is compiled for every machine: what stands here is called where
// there are such registers.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include <hwy/base.h>

namespace chorus::amx {

// The registers as a unit of the tile kernels (tile_kernels-inl.h). By assembly: GCC's intrinsics take no template's
// constant for a register's number.
struct Tiles {
  // Makes the calling thread's registers fit the palette, 64 bytes as LDTILECFG reads them, unless they do: all are
  // zero then. A palette is known by its address.
  static void configure(const void* palette);

  template <int kTile>
  static HWY_INLINE void load(const void* memory, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static HWY_INLINE void store(void* memory, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static HWY_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // sums[m][n] += rows[m] . weights[n], bfloat16 pairs.
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiplyBf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
  // sums[m][n] += rows[m] . weights[n], of rows signed and of weights unsigned integers of 8 bits, four in a lane.
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiplyInt8() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
};

}  // namespace chorus::amx
#endif
