#include "text/tokenizer/library_characters.h"

#include <gtest/gtest.h>

namespace chorus::library {
namespace {

TEST(LibraryCharactersTest, Classes) {
  EXPECT_TRUE(isControl(0) && isControl(0x7F) && isControl(0xFFFD) && isControl(0xE000) && isControl(0x200B));
  EXPECT_FALSE(isControl('\n') || isControl(' ') || isControl('a') || isControl(0x378));
  EXPECT_TRUE(isNonspacingMark(0x301) && isMark(0x301) && isMark(0x903) && !isNonspacingMark(0x903));
  EXPECT_TRUE(isPunctuation('$') && isPunctuation('_') && isPunctuation(0x3002) && !isPunctuation(0xA3));
  EXPECT_TRUE(isNumber('7') && isNumber(0xBD) && isNumber(0x2163) && !isNumber('a'));
  EXPECT_TRUE(isWord('_') && isWord(0xE9) && isWord(0x200D) && !isWord('-') && !isWord(0x10FFFF));
}

// Characters that are newer than the library's tables.
TEST(LibraryCharactersTest, TablesOfTheLibraryAndNotOfUnicode) {
  EXPECT_FALSE(isMark(0x1ABF));
  EXPECT_FALSE(isPunctuation(0x2E43));
  EXPECT_TRUE(isUnknownToNormalForms(0x10781) && isUnknownToNormalForms(0x11938));
  EXPECT_FALSE(isUnknownToNormalForms(0xE9) || isUnknownToNormalForms(0x301) || isUnknownToNormalForms(0xAC00));
  EXPECT_EQ(lowercaseOf(0x10D50), 0x10D70u);
  EXPECT_EQ(lowercaseOf(0x1C89), 0x1C8Au);
  EXPECT_EQ(lowercaseOf('Z'), uint32_t{'z'});
  EXPECT_EQ(lowercaseOf(0x3A3), 0x3C3u);
}

TEST(LibraryCharactersTest, Scripts) {
  EXPECT_EQ(scriptOf('a'), scriptOf(0xE9));
  EXPECT_NE(scriptOf('a'), scriptOf(0x3B1));
  EXPECT_EQ(scriptOf(0x3042), scriptOf(0x65E5));  // Hiragana and Han count as one
  EXPECT_EQ(scriptOf(0x30FC), scriptOf(0x65E5));
  EXPECT_EQ(scriptOf(' '), 0u);
  EXPECT_EQ(scriptOf(0x10FFFF), 0u);
  EXPECT_NE(scriptOf('1'), scriptOf('a'));
}

}  // namespace
}  // namespace chorus::library
