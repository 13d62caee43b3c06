#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace chorus {
namespace {

TEST(DTypeTest, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kInt4); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtypeFromName(dtypeName(dtype)), dtype);
    EXPECT_EQ(dtypeSize(dtype) == 0, dtype == DType::kInt4);
  }
  EXPECT_EQ(dtypeFromName("complex64"), std::nullopt);
}

TEST(DTypeTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const f16 half{static_cast<uint16_t>(bits)};
    const float wide = toFloat(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(toFloat(toF16(wide))));
    } else {
      EXPECT_EQ(toF16(wide).bits, bits);
    }
    const bf16 brain{static_cast<uint16_t>(bits)};
    if (!std::isnan(toFloat(brain))) {
      EXPECT_EQ(toBf16(toFloat(brain)).bits, bits);
    }
  }
}

TEST(DTypeTest, RoundsToNearestEven) {
  EXPECT_EQ(toBf16(1.0f + 0x1p-8f).bits, 0x3f80);             // tie, even below
  EXPECT_EQ(toBf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);         // tie, even above
  EXPECT_EQ(toBf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // just over the tie
  EXPECT_EQ(toF16(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(toF16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(toF16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(toF16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(toF16(0x1p-25f).bits, 0);  // tie with zero
  EXPECT_EQ(toF16(0x1.8p-24f).bits, 2);
  EXPECT_TRUE(std::isnan(toFloat(toBf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace chorus
