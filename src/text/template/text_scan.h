// Linear passes over texts. Each pass charges for what it reads, in steps that are small compared with the interval at
// which the meter looks at the clock.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/template/buffer.h"

namespace chorus::tmpl {

// Returned by a search that finds nothing, like std::string_view::npos.
inline constexpr size_t kNotFound = std::string_view::npos;

// Iterates over the characters of a text.
class Characters {
 public:
  Characters(Runtime& rt, std::string_view text) : rt_(rt), text_(text) {}
  // Moves to the next character; returns false at the end.
  bool next();
  uint32_t code() const { return code_; }
  std::string_view bytes() const { return text_.substr(begin_, end_ - begin_); }
  size_t begin() const { return begin_; }  // byte offsets
  size_t end() const { return end_; }

 private:
  static constexpr size_t kCharged = 4096;  // bytes that are charged at a time
  static constexpr uint64_t kCost = 4;      // per byte

  Runtime& rt_;
  std::string_view text_;
  size_t begin_ = 0, end_ = 0, charged_ = 0;
  uint32_t code_ = 0;
};

// Searches for a text, the needle, in other texts.
class TextFinder {
 public:
  TextFinder(Runtime& rt, std::string_view needle) : rt_(rt), needle_(needle), borders_(rt) {}
  // Returns the first position at or after `from`; npos if there is none.
  size_t find(std::string_view text, size_t from = 0) const;
  // Returns the last position; npos if there is none.
  size_t findLast(std::string_view text);

 private:
  Runtime& rt_;
  std::string_view needle_;
  Buffer<uint32_t> borders_;  // Knuth-Morris-Pratt table of the reversed needle; built on first use
};

// Iterates over the lines of a text, split like Python's splitlines().
class Lines {
 public:
  // one_more_end: the text is read as if a line feed followed it.
  Lines(Runtime& rt, std::string_view text, bool one_more_end)
      : characters_(rt, text), text_(text), last_line_(one_more_end) {}
  // Returns false at the end. keep_end: line includes its line end.
  bool next(std::string_view& line, bool keep_end);

 private:
  Characters characters_;
  std::string_view text_;
  size_t begin_ = 0;
  bool last_line_;
};

size_t countOf(Runtime& rt, std::string_view text);
// Byte offset of the character with this index; the end of the text if it has fewer characters.
size_t byteOffset(Runtime& rt, std::string_view text, size_t character);
// Python's white space: Unicode's, and the ASCII separators U+001C to U+001F.
bool isPythonSpace(uint32_t code);

// Strips the characters in chars from the ends of the text; if chars is null, strips white space.
std::string_view stripped(Runtime& rt, std::string_view text, const std::string_view* chars, bool left, bool right);
// Like stripped(), with an argument of a template: null or None means white space.
std::string_view strippedBy(Runtime& rt, std::string_view text, const Value* chars, bool left, bool right);

enum class Case { kLower, kUpper };
void appendCase(TextBuffer& out, Case to, std::string_view character);
Value withCase(Runtime& rt, std::string_view text, Case to);
// True if the text equals its lower (upper) case and has a character that differs in the other case.
bool hasOnlyCase(Runtime& rt, std::string_view text, Case wanted);
Value capitalized(Runtime& rt, std::string_view text);
// Python's str.title().
Value titled(Runtime& rt, std::string_view text);

}  // namespace chorus::tmpl
