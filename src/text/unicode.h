// UTF-8 decoding and the character properties that tokenizers and templates use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorus {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Result of decoding the start of a byte string.
struct Utf8Step {
  enum class Kind {
    kCharacter,   // `length` bytes are one character
    kInvalid,     // `length` bytes can never become a character
    kIncomplete,  // all bytes, `length` of them, may be the beginning of a character
  };
  Kind kind;
  uint32_t code;  // the character, for kCharacter; otherwise 0
  int length;
};

// bytes must not be empty. An invalid run is a maximal one as the Unicode standard defines it, so replacing each run by
// U+FFFD gives the same text as other decoders.
Utf8Step decodeUtf8(std::string_view bytes);
void appendUtf8(std::string& out, uint32_t code);
// Length in bytes of the character that begins with this byte, in text that is known to be valid.
inline int utf8Length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// Returns the text with every maximal invalid run replaced by U+FFFD.
std::string toValidUtf8(std::string_view bytes);
size_t countCharacters(std::string_view valid_utf8);

// The Unicode property White_Space.
bool isUnicodeSpace(uint32_t code);
// The categories \p{L} and \p{N}, from Oniguruma's tables.
bool isLetter(uint32_t code);
bool isNumber(uint32_t code);
bool isDecimalDigit(uint32_t code);
// Unicode's definition of \w: alphabetic characters, marks, decimal digits, connectors and joiners.
bool isWordCharacter(uint32_t code);

std::string toLower(std::string_view valid_utf8);
std::string toUpper(std::string_view valid_utf8);

// Length in bytes of the white space at either end of valid text.
size_t leadingSpace(std::string_view valid_utf8);
size_t trailingSpace(std::string_view valid_utf8);

// Makes untrusted text fit for an error line: control characters become '?', and text after 80 bytes is cut at the end
// of a character and replaced by "...".
std::string printable(std::string_view foreign);

}  // namespace chorus
