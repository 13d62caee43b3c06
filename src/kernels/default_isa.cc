#include "kernels/default_isa.h"

#include <algorithm>

#include "kernels/roofline.h"

namespace chorus {
namespace {

IsaChoice choose() {
  IsaChoice choice{.isa = availableIsas().back()};
  const bool amx = choice.isa == Isa::kAmx;
  if (!amx && choice.isa != Isa::kAvx512Bf16) return choice;
  constexpr int64_t kRounds = 2048;
  ThreadPool alone(1);
  const auto probe = [&](Isa isa, double& best) { best = std::max(best, measureMatmulPeak(alone, isa, kRounds)); };
  // In turn: a core that changes its clock slows all.
  for (int pass = 0; pass < 2; ++pass) {
    if (amx) probe(Isa::kAmx, choice.tile_flops);
    probe(Isa::kAvx512Bf16, choice.dot_flops);
    probe(Isa::kAvx512, choice.fma_flops);
  }
  choice.isa = fastest(choice);
  return choice;
}
}  // namespace

Isa fastest(const IsaChoice& probed) {
  // Far from the outcomes that were met, 2.0 and 0.4 for dot products: noise does not turn it.
  constexpr double kClearly = 1.2;
  if (probed.tile_flops > kClearly * std::max(probed.dot_flops, probed.fma_flops)) return Isa::kAmx;
  return probed.dot_flops > kClearly * probed.fma_flops ? Isa::kAvx512Bf16 : Isa::kAvx512Vnni;
}

const IsaChoice& defaultIsaChoice() {
  static const IsaChoice choice = choose();
  return choice;
}

}  // namespace chorus
