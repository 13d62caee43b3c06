#include "text/tokenizer/regex_scanner.h"

#include <oniguruma.h>

#include <string>
#include <utility>

namespace chorus::regex {
namespace {

int typeByName(std::string_view name) {
  OnigEncodingType* encoding = ONIG_ENCODING_UTF8;
  const auto* begin = reinterpret_cast<const OnigUChar*>(name.data());
  const int type = encoding->property_name_to_ctype(encoding, const_cast<OnigUChar*>(begin),
                                                    const_cast<OnigUChar*>(begin + name.size()));
  if (type < 0) throw Unsupported();
  return type;
}
}  // namespace

bool PatternScanner::classEscape(uint32_t code, CharacterSet& set) {
  switch (code) {
    case 'd':
    case 'D':
      set.addType(ONIGENC_CTYPE_DIGIT, code == 'D');
      return true;
    case 'w':
    case 'W':
      set.addType(ONIGENC_CTYPE_WORD, code == 'W');
      return true;
    case 's':
    case 'S':
      set.addType(ONIGENC_CTYPE_SPACE, code == 'S');
      return true;
    case 'h':
    case 'H':
      set.addType(ONIGENC_CTYPE_XDIGIT, code == 'H');
      return true;
    case 'p':
    case 'P': {
      if (!take("{")) throw Unsupported();
      const bool negated = take("^") != (code == 'P');
      const size_t end = text_.bytes().find('}', at_);
      if (end == std::string_view::npos) throw Unsupported();
      set.addType(typeByName(text_.bytes().substr(at_, end - at_)), negated);
      at_ = end + 1;
      return true;
    }
    default:
      return false;
  }
}

uint32_t PatternScanner::characterEscape(uint32_t code) {
  switch (code) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'x': {
      const bool braces = take("{");
      const uint32_t value = hex(braces ? 8 : 2);
      if (braces ? !take("}") || !isCharacterCode(value) : value >= 128) throw Unsupported();
      return value;
    }
    case 'u': {
      const size_t begin = at_;
      const uint32_t value = hex(4);
      if (at_ - begin != 4 || !isCharacterCode(value)) throw Unsupported();
      return value;
    }
    default:
      break;
  }
  const bool alphanumeric = isAsciiLetter(code) || (code >= '0' && code <= '9');
  if (code >= 128 || alphanumeric || code < 0x20) throw Unsupported();
  return code;
}

uint32_t PatternScanner::hex(int digits) {
  uint32_t value = 0;
  const size_t begin = at_;
  for (; at_ < text_.size() && at_ - begin < static_cast<size_t>(digits); ++at_) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) break;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  if (at_ == begin) throw Unsupported();
  return value;
}

uint32_t PatternScanner::rangeEnd() {
  const uint32_t code = next();
  CharacterSet none;
  if (classEscape(code, none)) throw Unsupported();
  return code == 'b' ? '\b' : characterEscape(code);
}

void PatternScanner::posixBracket(CharacterSet& set) {
  static constexpr std::pair<std::string_view, int> kTypes[] = {
      {"alnum", ONIGENC_CTYPE_ALNUM}, {"alpha", ONIGENC_CTYPE_ALPHA},   {"blank", ONIGENC_CTYPE_BLANK},
      {"cntrl", ONIGENC_CTYPE_CNTRL}, {"digit", ONIGENC_CTYPE_DIGIT},   {"graph", ONIGENC_CTYPE_GRAPH},
      {"lower", ONIGENC_CTYPE_LOWER}, {"print", ONIGENC_CTYPE_PRINT},   {"space", ONIGENC_CTYPE_SPACE},
      {"upper", ONIGENC_CTYPE_UPPER}, {"xdigit", ONIGENC_CTYPE_XDIGIT}, {"word", ONIGENC_CTYPE_WORD}};
  take("[:");
  const bool negated = take("^");
  for (const auto& [name, type] : kTypes) {
    if (!has(std::string(name) + ":]")) continue;
    at_ += name.size() + 2;
    set.addType(type, negated);
    return;
  }
  throw Unsupported();
}

}  // namespace chorus::regex
