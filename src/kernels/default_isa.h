// Chooses the instruction set of a CPU backend if BackendOptions::isa is not set.
#pragma once

#include "base/cpu_features.h"

namespace chorus {

struct IsaChoice {
  Isa isa;
  // Measured operations per second of one thread, which decide the choice; 0 if not measured.
  double tile_flops = 0;  // bfloat16 products by AMX
  double dot_flops = 0;   // bfloat16 dot products
  double fma_flops = 0;   // float32 multiply-adds
};
// The instruction set to choose, given the measurements in `probed`.
Isa fastest(const IsaChoice& probed);
// The best instruction set of this machine for all formats and numbers of rows, chosen once per process at the first
// call. AVX-512 BF16 and AMX are chosen only if a probe of about a millisecond finds them clearly faster, because some
// processors run bfloat16 dot products at twice the speed of float32 multiply-adds and some at less than half. Integer
// dot products (VNNI) are never slower and are not probed. Thread-safe.
const IsaChoice& defaultIsaChoice();
inline Isa defaultIsa() { return defaultIsaChoice().isa; }

}  // namespace chorus
