// The loops whose speed is a limit of the machine, one version for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"

namespace chorus {

struct ReadKernels {
  // Each reads `bytes` bytes (a multiple of 256) from a 64-byte aligned address and returns a value that depends on all
  // of them.
  float (*read[6])(const std::byte* data, size_t bytes);
};

// A loop of products of the input types that the linear uses with this instruction set: float32; bfloat16 if the set
// has dot products of bfloat16 pairs; the two digits of fixed point if it has only integer dot products.
struct ProductLoop {
  // Returns a value that depends on every round. `start` must be at least 1, so that all operands and sums are normal
  // numbers, which every processor multiplies at its full speed.
  float (*run)(int64_t rounds, float start);
  double flops_per_round;
};
// The loops of the best instruction set that `isa` includes.
const ReadKernels& readKernelsOf(Isa isa);
const ProductLoop& productLoopOf(Isa isa);
#if defined(__x86_64__)
ProductLoop vnniProductLoop();  // Isa::kAvx512Vnni
ProductLoop dotProductLoop();   // Isa::kAvx512Bf16
ProductLoop tileProductLoop();  // Isa::kAmxInt8
#endif

}  // namespace chorus
