// The processor's AMX tile registers. Files that include this one are compiled for every machine; call these functions
// only if the machine has AMX.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include <hwy/base.h>

#include "kernels/cpu/tile_configuration.h"

namespace chorus::amx {

// The registers as the Unit of the tile kernels (tile_kernels-inl.h). Written in assembly because GCC's intrinsics do
// not accept a template constant as the number of a register.
struct Tiles {
  static void configure(TileConfiguration& tiles, const void* palette) { tiles.use(palette); }

  template <int kTile>
  static HWY_INLINE void load(const void* memory, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
  }
  // load() with a non-temporal hint, so that the loaded lines evict less from the caches.
  template <int kTile>
  static HWY_INLINE void loadOnce(const void* memory, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(kTile) : "memory");
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
  // sums[m][n] += rows[m] . weights[n]. Rows are signed and weights unsigned 8-bit integers, four in a lane.
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiplyInt8() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
  // multiplyInt8() with signed weights.
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiplySigned() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
};

}  // namespace chorus::amx
#endif
