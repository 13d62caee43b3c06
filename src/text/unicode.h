// UTF-8 and the character properties that tokenizers and templates ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorus {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What one look at the start of a byte string finds.
struct Utf8Step {
  enum class Kind {
    kCharacter,   // length bytes are one character
    kInvalid,     // length bytes can never become a character
    kIncomplete,  // all bytes seen may be the beginning of a character; length is their number
  };
  Kind kind;
  uint32_t code;  // the character, of kCharacter
  int length;
};

// bytes must not be empty. Invalid runs are the maximal ones of the Unicode standard, so that replacing each by
// U+FFFD gives what every other decoder gives.
Utf8Step decodeUtf8(std::string_view bytes);
void appendUtf8(std::string& out, uint32_t code);
// Length of the character whose first byte is given, in text that is known to be valid.
inline int utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// The same text with every maximal invalid run replaced by U+FFFD.
std::string toValidUtf8(std::string_view bytes);
size_t countCharacters(std::string_view valid_utf8);

// The Unicode property White_Space.
bool isUnicodeSpace(uint32_t code);
// The categories \p{L} and \p{N} as the regular expression library sees them.
bool isLetter(uint32_t code);
bool isNumber(uint32_t code);
bool isDecimalDigit(uint32_t code);
// What \w means to Unicode: alphabetic, marks, decimal digits, connectors and joiners.
bool isWordCharacter(uint32_t code);
// General categories P*, and all of ASCII's punctuation and symbols.
bool isPunctuation(uint32_t code);
// General categories M*.
bool isMark(uint32_t code);

std::string toLower(std::string_view valid_utf8);
std::string toUpper(std::string_view valid_utf8);

// Length in bytes of the white space at either end of valid text.
size_t leadingSpace(std::string_view valid_utf8);
size_t trailingSpace(std::string_view valid_utf8);

// Foreign text for an error line: control characters as '?', cut after 80 bytes at a character's end.
std::string printable(std::string_view foreign);

}  // namespace chorus
