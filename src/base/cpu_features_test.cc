#include "base/cpu_features.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(CpuFeaturesTest, NamesRoundTripAndScalarIsAlwaysThere) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx, Isa::kNeon}) {
    EXPECT_EQ(isaFromName(isaName(isa)), isa);
  }
  EXPECT_EQ(isaFromName("sse9"), std::nullopt);
  ASSERT_FALSE(availableIsas().empty());
  EXPECT_EQ(availableIsas().front(), Isa::kScalar);
  EXPECT_GE(availableCores(), 1);
  EXPECT_GT(availableMemory(), size_t{1} << 20);
}

}  // namespace
}  // namespace chorus
