// The loops whose speed is a roof, one set for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"

namespace chorus {

struct ReadKernels {
  // Each reads bytes (a multiple of 256) from a 64-byte aligned address and returns something that depends on
  // all.
  float (*read[6])(const std::byte* data, size_t bytes);
};

// Products of the inputs that a linear by this set takes: float32, bfloat16 where the set has products of their pairs,
// or the two digits of fixed point where it has integer products alone.
struct ProductLoop {
  // Returns something that depends on every round. start: at least 1, so that all operands and sums are normal numbers,
  // which every processor multiplies at its full speed.
  float (*run)(int64_t rounds, float start);
  double flops_per_round;
};
// Of the best set that `isa` includes.
const ReadKernels& readKernelsOf(Isa isa);
const ProductLoop& productLoopOf(Isa isa);
#if defined(__x86_64__)
ProductLoop vnniProductLoop();  // Isa::kAvx512Vnni
ProductLoop dotProductLoop();   // Isa::kAvx512Bf16
ProductLoop tileProductLoop();  // Isa::kAmx
#endif

}  // namespace chorus
