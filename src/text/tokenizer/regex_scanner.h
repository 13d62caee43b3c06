// Scanner of regular expressions: reads characters, escapes and the names in brackets.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/tokenizer/character_set.h"
#include "text/utf8_text.h"

namespace chorus::regex {

// Thrown and caught only within the parser and its scanner: the pattern is wrong, or its syntax is not supported here.
struct Unsupported {};

inline bool isAsciiLetter(uint32_t code) { return (code | 0x20) >= 'a' && (code | 0x20) <= 'z' && code < 128; }

class PatternScanner {
 public:
  explicit PatternScanner(Utf8View text) : text_(text) {}

  bool ended() const { return at_ >= text_.size(); }
  bool has(std::string_view what) const { return text_.bytes().substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!has(what)) return false;
    at_ += what.size();
    return true;
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_.bytes()[at_ + ahead] : '\0'; }
  uint32_t next() {
    if (ended()) throw Unsupported();
    const auto character = text_.characterAt(at_);
    at_ += character.length;
    return character.code;
  }

  // Called after a backslash and the character `code`. For a class escape such as \d, adds its characters to set and
  // returns true; returns false for an escape of one character.
  bool classEscape(uint32_t code, CharacterSet& set);
  // Called after a backslash and the character `code`: returns the character of any other escape.
  uint32_t characterEscape(uint32_t code);
  // Reads the upper end of a range in brackets, after its backslash.
  uint32_t rangeEnd();
  // Reads [:name:] within brackets.
  void posixBracket(CharacterSet& set);

 protected:
  Utf8View text_;
  size_t at_ = 0;

 private:
  uint32_t hex(int digits);
};

}  // namespace chorus::regex
