// The loops whose speed is a roof, one set for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorus {

struct RooflineKernels {
  // Each reads bytes (a multiple of 256) from a 64-byte aligned address and returns something that depends on
  // all.
  float (*read[6])(const std::byte* data, size_t bytes);
  float (*multiply_add)(int64_t rounds, float start);
  double flops_per_round;  // of multiply_add
};

}  // namespace chorus
