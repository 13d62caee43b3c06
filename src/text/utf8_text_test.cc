#include "text/utf8_text.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chorus {
namespace {

TEST(Utf8TextTest, OnlyValidBytesBecomeAView) {
  for (const char* valid : {"", "a", "é", "日本語 with ASCII behind it", "\xF0\x9F\x98\x80"}) {
    const auto view = Utf8View::check(valid);
    ASSERT_TRUE(view) << valid;
    EXPECT_EQ(view->bytes(), valid);
    EXPECT_TRUE(Utf8Text::check(valid));
  }
  for (const char* invalid : {"\x80", "abcdefgh\xC3", "\xC3(", "\xE6\x97", "\xF0\x9F\x98", "\xC0\x80", "\xED\xA0\x80",
                              "\xF4\x90\x80\x80", "a\xFFz"}) {
    EXPECT_FALSE(Utf8View::check(invalid));
    EXPECT_FALSE(Utf8Text::check(invalid));
    EXPECT_TRUE(Utf8View::check(Utf8Text::replacingInvalid(invalid).bytes()));
  }
}

TEST(Utf8TextTest, PartsBeginAndEndAtCharacters) {
  const Utf8View view = *Utf8View::check("aé日😀");
  EXPECT_EQ(view.sub(1, 3).bytes(), "é");
  EXPECT_EQ(view.from(3).bytes(), "日😀");
  EXPECT_EQ(view.before(10), 6u);
  EXPECT_EQ(view.characterAt(6).code, 0x1F600u);
  EXPECT_EQ(view.characterAt(6).length, 4u);
  for (size_t inside : {2, 4, 5, 7, 8, 9}) {
    EXPECT_FALSE(view.isBoundary(inside));
    EXPECT_THROW(view.sub(0, inside), Error);
    EXPECT_THROW(view.from(inside), Error);
    EXPECT_THROW(view.characterAt(inside), Error);
    EXPECT_THROW(view.before(inside), Error);
  }
  EXPECT_THROW(view.sub(3, 1), Error);
  EXPECT_THROW(view.sub(0, 11), Error);
  EXPECT_THROW(view.characterAt(10), Error);
  EXPECT_THROW(view.before(0), Error);
}

TEST(Utf8TextTest, NumbersThatAreNoCharactersAreReplaced) {
  Utf8Text text;
  for (uint32_t code : {0x41u, 0xD800u, 0x110000u, 0xFFFFFFFFu}) text.append(code);
  EXPECT_EQ(text.bytes(), "A\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace chorus
