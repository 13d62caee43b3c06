#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chorus {
namespace {

TEST(PrintableTest, EscapesWhatATerminalOrAReaderCouldMistake) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain, grün, 語, \xf0\x9f\x98\x80", "plain, grün, 語, \xf0\x9f\x98\x80"},
      {"a\nb\tc\rd", "a\\nb\\x09c\\x0dd"},
      {"\x1b[31mred\x7f", "\\x1b[31mred\\x7f"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\xc2\x9b"
       "31m",
       "\\u{9b}31m"},           // CSI as one C1 character
      {"\xc2\x85", "\\u{85}"},  // next line
      {"\xe2\x80\xae"
       "gpj.exe",
       "\\u{202e}gpj.exe"},  // right-to-left override
      {"\xe2\x81\xa6x\xe2\x81\xa9", "\\u{2066}x\\u{2069}"},
      {"\xe2\x80\xa8\xe2\x80\xa9", "\\u{2028}\\u{2029}"},
      {"\xe2\x80\x8b\xef\xbb\xbf", "\\u{200b}\\u{feff}"},
      {"\xf3\xa0\x81\xa1", "\\u{e0061}"},  // a tag character
      {"\xff\xc0\xaf\xed\xa0\x80", "??????"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(printable(text, 100), expected);
    EXPECT_EQ(isPrintable(text), text == expected) << expected;
    EXPECT_EQ(Error(ErrorCode::kCorrupt, text).what(), expected);
  }
}

TEST(PrintableTest, IsBounded) {
  EXPECT_EQ(printable(std::string(1000, 'a'), 10), std::string(11, 'a') + "...");
  EXPECT_LE(printable(std::string(1'000'000, '\x01'), 100).size(), 110u);
}

}  // namespace
}  // namespace chorus
