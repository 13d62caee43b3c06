#include "kernels/default_isa.h"

#include <algorithm>

#include "kernels/roofline.h"

namespace chorus {
namespace {

IsaChoice choose() {
  IsaChoice choice{.isa = availableIsas().back()};
  if (choice.isa != Isa::kAvx512Bf16) return choice;
  // Far from both outcomes that were met, 2.0 and 0.4: noise does not turn it.
  constexpr double kClearly = 1.2;
  constexpr int64_t kRounds = 2048;
  ThreadPool alone(1);
  // In turn: a core that changes its clock slows both.
  for (int pass = 0; pass < 2; ++pass) {
    choice.dot_flops = std::max(choice.dot_flops, measureMatmulPeak(alone, Isa::kAvx512Bf16, kRounds));
    choice.fma_flops = std::max(choice.fma_flops, measureMatmulPeak(alone, Isa::kAvx512, kRounds));
  }
  if (choice.dot_flops < kClearly * choice.fma_flops) choice.isa = Isa::kAvx512;
  return choice;
}
}  // namespace

const IsaChoice& defaultIsaChoice() {
  static const IsaChoice choice = choose();
  return choice;
}

}  // namespace chorus
