#include "base/base64.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(Base64Test, Decodes) {
  EXPECT_EQ(decodeBase64(""), "");
  EXPECT_EQ(decodeBase64("Zg=="), "f");
  EXPECT_EQ(decodeBase64("Zm8="), "fo");
  EXPECT_EQ(decodeBase64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decodeBase64("AP+/"), std::string("\0\xFF\xBF", 3));
  EXPECT_EQ(decodeBase64("Zm8"), "fo");  // without padding
}

TEST(Base64Test, RefusesOtherCharacters) {
  EXPECT_EQ(decodeBase64("Zm8-"), std::nullopt);
  EXPECT_EQ(decodeBase64("Zg==Zg=="), std::nullopt);
  EXPECT_EQ(decodeBase64("Zm 8"), std::nullopt);
  EXPECT_EQ(decodeBase64("\xC3\xA9"), std::nullopt);
}

}  // namespace
}  // namespace chorus
