#include "text/unicode.h"

#include <oniguruma.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/oniguruma_types.h"

namespace chorus {
namespace {

// Categories come from Oniguruma's tables, so that the hand-written matcher of a known pattern can't disagree with the
// pattern about a character.
class CategoryTable {
 public:
  explicit CategoryTable(std::string_view name) {
    OnigEncodingType* encoding = ONIG_ENCODING_UTF8;
    const auto* begin = reinterpret_cast<const OnigUChar*>(name.data());
    ctype_ = encoding->property_name_to_ctype(encoding, const_cast<OnigUChar*>(begin),
                                              const_cast<OnigUChar*>(begin + name.size()));
    for (uint32_t code = 0; code < ascii_.size(); ++code) ascii_[code] = lookUp(code);
  }
  bool contains(uint32_t code) const { return code < ascii_.size() ? ascii_[code] : lookUp(code); }

 private:
  bool lookUp(uint32_t code) const { return hasOnigurumaType(code, ctype_); }
  int ctype_;
  std::array<bool, 128> ascii_{};
};

template <typename F>
std::string mapCharacters(std::string_view text, F&& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decodeUtf8(text.substr(i));
    map(out, step.code);
    i += static_cast<size_t>(step.length);
  }
  return out;
}
}  // namespace

Utf8Step decodeUtf8(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return {Kind::kCharacter, first, 1};
  int length = 0;
  unsigned low = 0x80, high = 0xBF;  // range of the second byte; excludes overlong forms and surrogates
  if (first >= 0xC2 && first <= 0xDF)
    length = 2;
  else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {Kind::kInvalid, 0, 1};
  }
  uint32_t code = first & (0xFFu >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= bytes.size()) return {Kind::kIncomplete, 0, i};
    const unsigned byte = at(static_cast<size_t>(i));
    if (byte < low || byte > high) return {Kind::kInvalid, 0, i};
    low = 0x80, high = 0xBF;
    code = (code << 6) | (byte & 0x3F);
  }
  return {Kind::kCharacter, code, length};
}

void appendUtf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6)), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12)), put(0x80 | ((code >> 6) & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18)), put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

std::string toValidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = decodeUtf8(bytes.substr(i));
    const auto length = static_cast<size_t>(step.length);
    out += step.kind == Utf8Step::Kind::kCharacter ? bytes.substr(i, length) : kReplacementCharacter;
    i += length;
  }
  return out;
}

size_t countCharacters(std::string_view valid_utf8) {
  size_t count = 0;
  for (const char c : valid_utf8) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

bool isUnicodeSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool isLetter(uint32_t code) {
  static const CategoryTable table("L");
  return table.contains(code);
}
bool isNumber(uint32_t code) {
  static const CategoryTable table("N");
  return table.contains(code);
}
bool isDecimalDigit(uint32_t code) {
  static const CategoryTable table("Nd");
  return table.contains(code);
}
bool isWordCharacter(uint32_t code) {
  static const CategoryTable alphabetic("Alphabetic"), mark("M"), digit("Nd"), connector("Pc");
  const bool joiner = code == 0x200C || code == 0x200D;
  return alphabetic.contains(code) || mark.contains(code) || digit.contains(code) || connector.contains(code) || joiner;
}

std::string toLower(std::string_view valid_utf8) {
  return mapCharacters(valid_utf8, [](std::string& out, uint32_t code) {
    appendUtf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    // U+0130 (I with a dot above) is the only character whose lower case is two characters.
    if (code == 0x130) out.resize(out.size() - 1), out += "i\xCC\x87";
  });
}

std::string toUpper(std::string_view valid_utf8) {
  return mapCharacters(valid_utf8, [](std::string& out, uint32_t code) {
    if (code == 0xDF)
      out += "SS";
    else
      appendUtf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
  });
}

size_t leadingSpace(std::string_view valid_utf8) {
  size_t i = 0;
  while (i < valid_utf8.size()) {
    const Utf8Step step = decodeUtf8(valid_utf8.substr(i));
    if (!isUnicodeSpace(step.code)) break;
    i += static_cast<size_t>(step.length);
  }
  return i;
}

size_t trailingSpace(std::string_view valid_utf8) {
  size_t end = valid_utf8.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(valid_utf8[start]) & 0xC0) == 0x80) --start;
    if (!isUnicodeSpace(decodeUtf8(valid_utf8.substr(start)).code)) break;
    end = start;
  }
  return valid_utf8.size() - end;
}

std::string printable(std::string_view foreign) {
  constexpr size_t kMaxBytes = 80;
  std::string text = toValidUtf8(foreign.substr(0, kMaxBytes + 4));
  size_t end = std::min(text.size(), kMaxBytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  const bool cut = end < text.size();
  text.resize(end);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return cut ? text + "..." : text;
}

}  // namespace chorus
