// Lets Highway compile one source once for each instruction set; include before hwy/foreach_target.h. The caller
// chooses the instruction set, so that one process can hold backends with different sets and no choice is global.
#pragma once

// Disables the targets without an Isa, which would only cost compile time. Moreover, the length of SVE vectors is not
// known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/detect_targets.h>
#include "kernels/cpu/isa_table.h"

#if HWY_TARGETS & HWY_AVX2
#define CHORUS_AVX2_ENTRY(function) \
  {::chorus::Isa::kAvx2, ::chorus::kernelIfAvailable(::chorus::Isa::kAvx2, N_AVX2::function)},
#else
#define CHORUS_AVX2_ENTRY(function)
#endif
#if HWY_TARGETS & HWY_AVX3
#define CHORUS_AVX512_ENTRY(function) \
  {::chorus::Isa::kAvx512, ::chorus::kernelIfAvailable(::chorus::Isa::kAvx512, N_AVX3::function)},
#else
#define CHORUS_AVX512_ENTRY(function)
#endif
#if HWY_ARCH_ARM_A64
#define CHORUS_NEON_ENTRY(function) {::chorus::Isa::kNeon, HWY_STATIC_DISPATCH(function)()},
#else
#define CHORUS_NEON_ENTRY(function)
#endif

// Body of a function that returns an IsaTable: for each compiled instruction set, what `function` (without arguments)
// returns there. Highway's static target, which every machine of the architecture runs, is entered as kScalar. Use it
// inside namespace chorus.
#define CHORUS_ISA_TABLE(Kernel, function) CHORUS_ISA_TABLE_AND(Kernel, function, )
// CHORUS_ISA_TABLE with further entries {isa, kernel} of larger instruction sets, whose kernels are written without
// Highway.
#define CHORUS_ISA_TABLE_AND(Kernel, function, ...)                                                              \
  static const ::chorus::IsaKernel<Kernel> table[] = {{::chorus::Isa::kScalar, HWY_STATIC_DISPATCH(function)()}, \
                                                      CHORUS_AVX2_ENTRY(function) CHORUS_AVX512_ENTRY(function)  \
                                                          CHORUS_NEON_ENTRY(function) __VA_ARGS__};              \
  return table
