#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chorus {
namespace {

TEST(Utf8Test, KnowsValidText) {
  for (const std::string_view valid : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(isUtf8(valid)) << valid;
  }
  for (const std::string_view invalid : {"\x80", "\xc0\xaf", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x9f\xbf",
                                         "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80", "a\xff", "\xe2\x82"}) {
    EXPECT_FALSE(isUtf8(invalid)) << invalid;
  }
}

TEST(Utf8Test, ErrorsAreOneLineWhateverTheyQuote) {
  EXPECT_STREQ(Error(ErrorCode::kCorrupt, "a\nb\r\x01 \xff \xc3\xa9").what(), "a\\nb\\x0d\\x01 ? \xc3\xa9");
  EXPECT_LT(oneLine(std::string(1 << 20, 'x')).size(), 5000u);
}

}  // namespace
}  // namespace chorus
