// The instruction set of a backend that is asked for none.
#pragma once

#include "base/cpu_features.h"

namespace chorus {

struct IsaChoice {
  Isa isa;
  // Operations per second of one thread that the choice follows; 0 where there was nothing to choose.
  double tile_flops = 0;  // bfloat16 products of tiles
  double dot_flops = 0;   // bfloat16 dot products
  double fma_flops = 0;   // float32 multiply-adds
};
// Which of the sets that were probed to take.
Isa fastest(const IsaChoice& probed);
// The best set of this machine. Of those with bfloat16 dot products some do them at twice the speed of float32
// multiply-adds and some at less than half: AVX-512 BF16 is taken where a probe of about a millisecond finds it clearly
// faster, and so is AMX. Integer dot products (VNNI) are never the slower ones. Decided once a process, at the first
// call, for every format and number of rows. Thread-safe.
const IsaChoice& defaultIsaChoice();
inline Isa defaultIsa() { return defaultIsaChoice().isa; }

}  // namespace chorus
