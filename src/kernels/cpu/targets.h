// One source, compiled once for each instruction set by Highway; include before hwy/foreach_target.h. The
// caller names the set it wants (selectIsa), so that one process can hold backends of different sets and
// nothing is global.
#pragma once

// Sets that no Isa stands for would only cost compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

#include "base/cpu_features.h"
#include <hwy/detect_targets.h>

#if HWY_TARGETS & HWY_AVX3
#define CHORUS_TRY_AVX512(isa, function) \
  if ((isa) >= ::chorus::Isa::kAvx512 && (isa) <= ::chorus::Isa::kAmx) return N_AVX3::function();
#else
#define CHORUS_TRY_AVX512(isa, function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define CHORUS_TRY_AVX2(isa, function) \
  if ((isa) >= ::chorus::Isa::kAvx2 && (isa) <= ::chorus::Isa::kAmx) return N_AVX2::function();
#else
#define CHORUS_TRY_AVX2(isa, function)
#endif

// Body of a function that returns what `function` of the best compiled set not above isa returns; NEON is the
// static target of its architecture. Stands inside namespace chorus.
#define CHORUS_SELECT_ISA(isa, function) \
  CHORUS_TRY_AVX512(isa, function)       \
  CHORUS_TRY_AVX2(isa, function)         \
  return HWY_STATIC_DISPATCH(function)()
