#include "text/tokenizer/known_splits.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"

namespace chorus {
namespace {

enum class Class : uint8_t { kLetter, kNumber, kSpace, kOther };

Class classify(uint32_t code) {
  if (isLetter(code)) return Class::kLetter;
  if (isNumber(code)) return Class::kNumber;
  return isUnicodeSpace(code) ? Class::kSpace : Class::kOther;
}

// A position in the text with the class of the character there.
struct Cursor {
  Cursor(Utf8View t, size_t p) : text(t), at(p) { look(); }
  bool ended() const { return at >= text.size(); }
  bool is(Class c) const { return !ended() && kind == c; }
  bool isNewline() const { return !ended() && (code == '\r' || code == '\n'); }
  void advance() { at += length, look(); }
  void advanceWhile(Class c) {
    while (is(c)) advance();
  }

  Utf8View text;
  size_t at;
  uint32_t code = 0;
  uint32_t length = 0;
  Class kind = Class::kOther;

 private:
  void look() {
    if (ended()) return;
    const auto byte = static_cast<unsigned char>(text.bytes()[at]);
    if (byte < 0x80) {
      static const std::array<Class, 128> kAscii = [] {
        std::array<Class, 128> table{};
        for (uint32_t c = 0; c < 128; ++c) table[c] = classify(c);
        return table;
      }();
      code = byte, length = 1, kind = kAscii[byte];
      return;
    }
    const auto character = text.characterAt(at);
    code = character.code, length = character.length, kind = classify(code);
  }
};

// Length of an English contraction at the start of text, 0 when there is none. Ignoring case means Unicode's simple
// folding, in which the long s (U+017F) is an s.
size_t contraction(std::string_view text, bool ignore_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto fold = [&](char c) { return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const char first = fold(text[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (ignore_case && text.substr(1, 2) == "\xC5\xBF") return 3;
  if (text.size() < 3) return 0;
  const char second = fold(text[2]);
  const bool two =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

// End of the match of \s+(?!\S)|\s+ at a white space character. A run of white space leaves its last character to the
// next word, unless the run is one character or ends the text.
size_t spaceRun(Cursor cursor) {
  const size_t begin = cursor.at;
  size_t last = begin;
  while (cursor.is(Class::kSpace)) last = cursor.at, cursor.advance();
  return cursor.ended() || last == begin ? cursor.at : last;
}

size_t gpt2Match(const Cursor& start) {
  if (const size_t n = contraction(start.text.bytes().substr(start.at), false); n > 0) return start.at + n;
  Cursor cursor = start;
  if (cursor.code == ' ') cursor.advance();
  if (!cursor.ended() && cursor.kind != Class::kSpace) {
    cursor.advanceWhile(cursor.kind);
    return cursor.at;
  }
  return spaceRun(start);
}

// max_digits: the largest number of \p{N} characters in one match.
size_t cl100kMatch(const Cursor& start, int max_digits) {
  if (const size_t n = contraction(start.text.bytes().substr(start.at), true); n > 0) return start.at + n;
  Cursor cursor = start;
  if (!cursor.is(Class::kLetter) && !cursor.is(Class::kNumber) && !cursor.isNewline()) cursor.advance();
  if (cursor.is(Class::kLetter)) {
    cursor.advanceWhile(Class::kLetter);
    return cursor.at;
  }
  cursor = start;
  if (cursor.is(Class::kNumber)) {
    for (int i = 0; i < max_digits && cursor.is(Class::kNumber); ++i) cursor.advance();
    return cursor.at;
  }
  if (cursor.code == ' ') cursor.advance();
  if (cursor.is(Class::kOther)) {
    cursor.advanceWhile(Class::kOther);
    while (cursor.isNewline()) cursor.advance();
    return cursor.at;
  }
  // \s*[\r\n]+ : up to the last newline of the run of white space.
  size_t after_newline = 0;
  for (cursor = start; cursor.is(Class::kSpace);) {
    const bool newline = cursor.isNewline();
    cursor.advance();
    if (newline) after_newline = cursor.at;
  }
  return after_newline > 0 ? after_newline : spaceRun(start);
}

}  // namespace

KnownSplit findKnownSplit(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return [](Utf8View text, size_t at) { return gpt2Match(Cursor(text, at)); };
  if (pattern == kLlama3Pattern) return [](Utf8View text, size_t at) { return cl100kMatch(Cursor(text, at), 3); };
  if (pattern == kQwen2Pattern) return [](Utf8View text, size_t at) { return cl100kMatch(Cursor(text, at), 1); };
  return nullptr;
}

void forEachKnownMatch(KnownSplit split, Utf8View text, EncodeWork& work, FunctionRef<bool(size_t, size_t)> found) {
  constexpr uint64_t kWorkPerByte = 8;
  for (size_t at = 0; at < text.size();) {
    const size_t end = split(text, at);
    work.meter.charge((end - at) * kWorkPerByte);
    if (!found(at, end)) return;
    at = end;
  }
}

}  // namespace chorus
