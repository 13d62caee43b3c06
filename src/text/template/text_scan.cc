#include "text/template/text_scan.h"

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

// Number of bytes that a search reads between two charges, so that the meter can look at the clock.
constexpr size_t kWindow = size_t{64} << 10;

struct CaseOf {
  char buffer[8];
  size_t size;
  std::string_view view() const { return {buffer, size}; }
};

CaseOf caseOf(Case to, std::string_view character) {
  CaseOf out;
  if (character.size() == 1) {
    const char c = character[0];
    const bool other = to == Case::kLower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
    out.buffer[0] = other ? static_cast<char>(c ^ 0x20) : c;
    out.size = 1;
    return out;
  }
  const std::string mapped = to == Case::kLower ? toLower(character) : toUpper(character);
  out.size = mapped.copy(out.buffer, sizeof out.buffer);
  return out;
}

std::string_view lastCharacter(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return text.substr(start);
}

// A set of characters: a bitmap for ASCII, a sorted list for other characters.
class CharacterSet {
 public:
  CharacterSet(Runtime& rt, std::string_view text) : others_(rt) {
    for (Characters c(rt, text); c.next();) {
      if (c.code() < 128)
        ascii_[c.code() / 64] |= uint64_t{1} << (c.code() % 64);
      else
        others_.push(c.code());
    }
    rt.charge(others_.items().size_bytes() * 16);  // cost of sorting
    std::sort(others_.items().begin(), others_.items().end());
  }
  bool contains(uint32_t code) {
    if (code < 128) return (ascii_[code / 64] >> (code % 64) & 1) != 0;
    return std::binary_search(others_.items().begin(), others_.items().end(), code);
  }

 private:
  uint64_t ascii_[2] = {};
  Buffer<uint32_t> others_;
};
}  // namespace

bool Characters::next() {
  begin_ = end_;
  if (begin_ >= text_.size()) return false;
  if (begin_ >= charged_) {
    const size_t size = std::min(kCharged, text_.size() - begin_);
    rt_.charge(size * kCost);
    charged_ = begin_ + size;
  }
  const auto first = static_cast<unsigned char>(text_[begin_]);
  if (first < 0x80) {
    code_ = first;
    end_ = begin_ + 1;
  } else {
    const Utf8Step step = decodeUtf8(text_.substr(begin_, 4));
    code_ = step.code;
    end_ = begin_ + static_cast<size_t>(step.length);
  }
  return true;
}

size_t TextFinder::find(std::string_view text, size_t from) const {
  if (needle_.empty()) return from <= text.size() ? from : kNotFound;
  const size_t window = std::max(kWindow, 4 * needle_.size());
  for (size_t at = from; at + needle_.size() <= text.size();) {
    const size_t size = std::min(window, text.size() - at);
    const void* const found = memmem(text.data() + at, size, needle_.data(), needle_.size());
    if (found != nullptr) {
      const auto place = static_cast<size_t>(static_cast<const char*>(found) - text.data());
      rt_.charge(place - at + needle_.size());
      return place;
    }
    rt_.charge(size + needle_.size());
    at += size - (needle_.size() - 1);
  }
  return kNotFound;
}

size_t TextFinder::findLast(std::string_view text) {
  const size_t size = needle_.size();
  if (size == 0) return text.size();
  if (size > text.size()) return kNotFound;
  // Both texts are read backwards: character i of the needle is needle[size - 1 - i].
  const auto pattern = [&](size_t i) { return needle_[size - 1 - i]; };
  if (borders_.empty()) {
    borders_.reserve(size);
    borders_.push(0);
    for (size_t i = 1, border = 0; i < size; ++i) {
      while (border > 0 && pattern(i) != pattern(border)) border = borders_.items()[border - 1];
      border += pattern(i) == pattern(border) ? 1 : 0;
      borders_.push(static_cast<uint32_t>(border));
    }
  }
  const std::span<const uint32_t> borders = borders_.items();
  constexpr size_t kPiece = 4096, kCost = 4;
  size_t matched = 0;
  for (size_t i = text.size(), charged = i; i-- > 0;) {
    if (charged - i == kPiece) {
      rt_.charge(kPiece * kCost);
      charged = i;
    }
    while (matched > 0 && text[i] != pattern(matched)) matched = borders[matched - 1];
    matched += text[i] == pattern(matched) ? 1 : 0;
    if (matched < size && i > 0) continue;
    rt_.charge((charged - i) * kCost);
    return matched == size ? i : kNotFound;
  }
  return kNotFound;
}

bool Lines::next(std::string_view& line, bool keep_end) {
  while (characters_.next()) {
    const uint32_t c = characters_.code();
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    const size_t line_end = characters_.begin();
    if (c == '\r' && characters_.end() < text_.size() && text_[characters_.end()] == '\n') characters_.next();
    const size_t end = characters_.end();
    line = text_.substr(begin_, (keep_end ? end : line_end) - begin_);
    begin_ = end;
    // The line feed added by one_more_end forms a single line end with a carriage return before it.
    if (c == '\r' && end == text_.size() && text_.back() == '\r') last_line_ = false;
    return true;
  }
  if (begin_ >= text_.size() && !last_line_) return false;
  line = text_.substr(begin_);
  begin_ = text_.size();
  last_line_ = false;
  return true;
}

size_t countOf(Runtime& rt, std::string_view text) {
  rt.charge(text.size());
  return countCharacters(text);
}

size_t byteOffset(Runtime& rt, std::string_view text, size_t character) {
  size_t at = 0;
  for (size_t i = 0; i < character && at < text.size(); ++i) {
    if (i % 1024 == 0) rt.charge(std::min<size_t>(1024, character - i) * 4);
    at += static_cast<size_t>(utf8Length(text[at]));
  }
  return at;
}

bool isPythonSpace(uint32_t code) { return isUnicodeSpace(code) || (code >= 0x1C && code <= 0x1F); }

std::string_view stripped(Runtime& rt, std::string_view text, const std::string_view* chars, bool left, bool right) {
  CharacterSet set(rt, chars != nullptr ? *chars : std::string_view());
  const auto strips = [&](std::string_view character) {
    rt.charge(4 * character.size());
    const uint32_t code = decodeUtf8(character).code;
    return chars != nullptr ? set.contains(code) : isPythonSpace(code);
  };
  while (left && !text.empty()) {
    const auto length = static_cast<size_t>(utf8Length(text[0]));
    if (!strips(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const std::string_view last = lastCharacter(text);
    if (!strips(last)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view strippedBy(Runtime& rt, std::string_view text, const Value* chars, bool left, bool right) {
  if (chars == nullptr || chars->isNone()) return stripped(rt, text, nullptr, left, right);
  if (!chars->isString()) raise("strip arg must be None or str");
  const std::string_view set = chars->string();
  return stripped(rt, text, &set, left, right);
}

void appendCase(TextBuffer& out, Case to, std::string_view character) { out.append(caseOf(to, character).view()); }

Value withCase(Runtime& rt, std::string_view text, Case to) {
  TextBuffer out(rt);
  out.reserve(text.size());
  for (Characters c(rt, text); c.next();) appendCase(out, to, c.bytes());
  return out.text();
}

bool hasOnlyCase(Runtime& rt, std::string_view text, Case wanted) {
  const Case other = wanted == Case::kLower ? Case::kUpper : Case::kLower;
  bool cased = false;
  for (Characters c(rt, text); c.next();) {
    if (caseOf(wanted, c.bytes()).view() != c.bytes()) return false;
    cased = cased || caseOf(other, c.bytes()).view() != c.bytes();
  }
  return cased;
}

Value capitalized(Runtime& rt, std::string_view text) {
  TextBuffer out(rt);
  out.reserve(text.size());
  for (Characters c(rt, text); c.next();) {
    if (c.begin() > 0)
      appendCase(out, Case::kLower, c.bytes());
    else if (const CaseOf head = caseOf(Case::kUpper, c.bytes()); head.view() == "SS")
      out.append("Ss");
    else
      out.append(head.view());
  }
  return out.text();
}

Value titled(Runtime& rt, std::string_view text) {
  rt.charge(text.size());  // each character is looked up in both cases
  TextBuffer out(rt);
  out.reserve(text.size());
  bool in_word = false;
  for (Characters c(rt, text); c.next();) {
    const CaseOf lower = caseOf(Case::kLower, c.bytes()), upper = caseOf(Case::kUpper, c.bytes());
    const bool cased = lower.view() != upper.view();
    out.append(!cased ? c.bytes() : in_word ? lower.view() : upper.view());
    in_word = cased;
  }
  return out.text();
}

}  // namespace chorus::tmpl
