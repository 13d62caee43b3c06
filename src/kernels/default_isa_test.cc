#include "kernels/default_isa.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace chorus {
namespace {

TEST(DefaultIsaTest, AClearlyFasterInstructionSetIsChosen) {
  const auto of = [](double tiles, double dots, double fmas) {
    return fastest({.isa = Isa::kAmx, .tile_flops = tiles, .dot_flops = dots, .fma_flops = fmas});
  };
  EXPECT_EQ(of(0, 2.0, 1.0), Isa::kAvx512Bf16);
  EXPECT_EQ(of(0, 1.1, 1.0), Isa::kAvx512Vnni);
  EXPECT_EQ(of(0, 0.4, 1.0), Isa::kAvx512Vnni);
  EXPECT_EQ(of(8.0, 0.4, 1.0), Isa::kAmx);
  EXPECT_EQ(of(2.1, 2.0, 1.0), Isa::kAvx512Bf16);
  EXPECT_EQ(of(0.5, 0.4, 1.0), Isa::kAvx512Vnni);
}

TEST(DefaultIsaTest, TheChoiceRunsHereAndFollowsItsProbe) {
  const IsaChoice& choice = defaultIsaChoice();
  const auto& isas = availableIsas();
  EXPECT_NE(std::find(isas.begin(), isas.end(), choice.isa), isas.end());
  if (choice.dot_flops > 0) {
    EXPECT_EQ(choice.isa, fastest(choice));
    EXPECT_EQ(choice.tile_flops > 0, isas.back() == Isa::kAmx);
  } else {
    EXPECT_EQ(choice.isa, isas.back());
  }
}

}  // namespace
}  // namespace chorus
