#include "text/oniguruma_types.h"

#include <gtest/gtest.h>

#include <iterator>

#include "text/newer_characters_table.h"
#include "text/tokenizer/regex.h"
#include "text/unicode.h"

namespace chorus {
namespace {

TEST(OnigurumaTypes, NewerCharactersHaveTheirCategories) {
  EXPECT_TRUE(isLetter(0x2EBF0)) << "CJK extension I, Unicode 15.1";
  EXPECT_TRUE(isLetter(0x10D50)) << "Garay, Unicode 16";
  EXPECT_TRUE(isLetter(0x1C89));
  EXPECT_FALSE(isNumber(0x1C89));
  EXPECT_TRUE(isDecimalDigit(0x11BF0));
  EXPECT_FALSE(isLetter(0x11BF0));
  EXPECT_FALSE(isLetter(0x897)) << "a mark";
  EXPECT_TRUE(isWordCharacter(0x897));
  EXPECT_FALSE(isLetter(0x1FAE9) || isNumber(0x1FAE9) || isWordCharacter(0x1FAE9)) << "an emoji";
  EXPECT_FALSE(isLetter(0x2EE5E) || isNumber(0x2EE5E) || isWordCharacter(0x2EE5E)) << "not assigned";
  EXPECT_TRUE(isKnownToOniguruma('a') && isKnownToOniguruma(0x4E00) && isKnownToOniguruma(0x2EE5E));
}

TEST(OnigurumaTypes, TheTableIsInOrderAndNamesOlderCharacters) {
  uint32_t after = 0x100;  // brackets and escapes agree from here on
  for (const NewerCharacters& run : kNewerCharacters) {
    EXPECT_GE(run.first, after);
    EXPECT_LE(run.first, run.last);
    EXPECT_GE(run.older, 0x100u);
    EXPECT_TRUE(isKnownToOniguruma(run.older)) << run.older;
    for (bool (*holds)(uint32_t) : {isLetter, isNumber, isDecimalDigit, isWordCharacter}) {
      EXPECT_EQ(holds(run.last), holds(run.older)) << run.last;
    }
    after = run.last + 1;
  }
}

// The patterns have classes in brackets, outside brackets and negated; the last one is GPT-2's.
TEST(OnigurumaTypes, PatternsMatchNewerCharacters) {
  const std::string letters = "x\U0002EBF0\U00010D50", text = letters + "\U00011BF0" + "\U0001FAE9";
  for (const char* pattern : {"[\\p{L}]+", "\\p{L}+", "[^\\P{L}]+",
                              "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}) {
    const Regex regex(pattern, "p");
    EXPECT_TRUE(regex.isNative());
    WorkMeter meter;
    Scratch scratch(Scratch::limitFor(text.size()), meter);
    EncodeWork work{meter, scratch};
    size_t first = 0;
    regex.forEachMatch(*Utf8View::check(text), work, [&](size_t, size_t end) { return first = end, false; });
    EXPECT_EQ(first, letters.size()) << pattern;
  }
}

}  // namespace
}  // namespace chorus
