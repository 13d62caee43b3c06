#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

TEST(CpuFeaturesTest, NamesRoundTripAndScalarIsAlwaysThere) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmxInt8,
                        Isa::kAmx, Isa::kNeon, Isa::kNeonDot}) {
    EXPECT_EQ(isaFromName(isaName(isa)), isa);
  }
  EXPECT_EQ(isaFromName("sse9"), std::nullopt);
  ASSERT_FALSE(availableIsas().empty());
  EXPECT_EQ(availableIsas().front(), Isa::kScalar);
  EXPECT_GE(availableCores(), 1);
  EXPECT_GT(availableMemory(), size_t{1} << 20);
  EXPECT_GT(residentMemory(), size_t{1} << 16);
  EXPECT_LT(residentMemory(), size_t{1} << 36);
}

TEST(CpuFeaturesTest, LaterSetsOfAnArchitectureIncludeTheEarlier) {
  EXPECT_TRUE(includes(Isa::kAvx512, Isa::kAvx512) && includes(Isa::kAmx, Isa::kAvx2) &&
              includes(Isa::kNeon, Isa::kScalar) && includes(Isa::kNeonDot, Isa::kNeon));
  EXPECT_TRUE(includes(Isa::kAvx512Vnni, Isa::kAvx512) && includes(Isa::kAvx512Bf16, Isa::kAvx512Vnni) &&
              includes(Isa::kAmxInt8, Isa::kAvx512Vnni) && includes(Isa::kAmx, Isa::kAmxInt8));
  EXPECT_FALSE(includes(Isa::kAvx2, Isa::kAvx512) || includes(Isa::kAvx512, Isa::kAvx512Vnni) ||
               includes(Isa::kAvx512Vnni, Isa::kAvx512Bf16) || includes(Isa::kNeon, Isa::kAvx2) ||
               includes(Isa::kNeonDot, Isa::kAmx) || includes(Isa::kNeon, Isa::kNeonDot) ||
               includes(Isa::kAmx, Isa::kNeon) || includes(Isa::kAmx, Isa::kAvx512Bf16) ||
               includes(Isa::kAmxInt8, Isa::kAvx512Bf16) || includes(Isa::kAmxInt8, Isa::kAmx));
}

TEST(CpuFeaturesTest, NamesThatAreNotHereAreRefusedWithThoseThatAre) {
  for (const Isa isa : availableIsas()) EXPECT_EQ(requireIsa(isaName(isa)), isa);
  EXPECT_EQ(errorOf([] { requireIsa("sse9"); }), "isa sse9: this machine runs " + availableIsaNames());
}

}  // namespace
}  // namespace chorus
