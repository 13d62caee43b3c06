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
  // Alternates between the sets, so that a change of the core's clock frequency affects all of them.
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
  // Observed ratios of dot products to multiply-adds are 2.0 and 0.4. The threshold is far from both, so that noise
  // does not change the choice.
  constexpr double kClearly = 1.2;
  if (probed.tile_flops > kClearly * std::max(probed.dot_flops, probed.fma_flops)) return Isa::kAmx;
  return probed.dot_flops > kClearly * probed.fma_flops ? Isa::kAvx512Bf16 : Isa::kAvx512Vnni;
}

const IsaChoice& defaultIsaChoice() {
  static const IsaChoice choice = choose();
  return choice;
}

}  // namespace chorus
