// Passes over texts. Each charges for what it reads, in steps that are small beside a meter's, and is linear whatever
// the text holds.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/template/buffer.h"

namespace chorus::tmpl {

// What a search returns that finds nothing, as std::string_view::find does.
inline constexpr size_t kNotFound = std::string_view::npos;

// The characters of a text, one by one.
class Characters {
 public:
  Characters(Runtime& rt, std::string_view text) : rt_(rt), text_(text) {}
  // False at the end.
  bool next();
  uint32_t code() const { return code_; }
  std::string_view bytes() const { return text_.substr(begin_, end_ - begin_); }
  size_t begin() const { return begin_; }  // byte offsets
  size_t end() const { return end_; }

 private:
  static constexpr size_t kCharged = 4096;  // bytes at a time
  static constexpr uint64_t kCost = 4;      // of a byte

  Runtime& rt_;
  std::string_view text_;
  size_t begin_ = 0, end_ = 0, charged_ = 0;
  uint32_t code_ = 0;
};

// Finds a text in others.
class TextFinder {
 public:
  TextFinder(Runtime& rt, std::string_view needle) : rt_(rt), needle_(needle), borders_(rt) {}
  // The first place at or after from; npos when there is none.
  size_t find(std::string_view text, size_t from = 0) const;
  // The last place.
  size_t findLast(std::string_view text);

 private:
  Runtime& rt_;
  std::string_view needle_;
  Buffer<uint32_t> borders_;  // of the needle read backwards, as Knuth, Morris and Pratt have them; made when needed
};

// The lines of a text, as Python's splitlines() has them.
class Lines {
 public:
  // one_more_end: the text is read as if a line feed followed it.
  Lines(Runtime& rt, std::string_view text, bool one_more_end)
      : characters_(rt, text), text_(text), last_line_(one_more_end) {}
  // False at the end. keep_end: with the line's end.
  bool next(std::string_view& line, bool keep_end);

 private:
  Characters characters_;
  std::string_view text_;
  size_t begin_ = 0;
  bool last_line_;
};

size_t countOf(Runtime& rt, std::string_view text);
// Where the character of that number begins; the end when there are fewer.
size_t byteOffset(Runtime& rt, std::string_view text, size_t character);
// Python's white space: Unicode's, and the four separators of ASCII.
bool isPythonSpace(uint32_t code);

// Without the characters at its ends that chars holds, or without white space when chars is null.
std::string_view stripped(Runtime& rt, std::string_view text, const std::string_view* chars, bool left, bool right);
// The same with an argument of a template: null or None is white space.
std::string_view strippedBy(Runtime& rt, std::string_view text, const Value* chars, bool left, bool right);

enum class Case { kLower, kUpper };
void appendCase(TextBuffer& out, Case to, std::string_view character);
Value withCase(Runtime& rt, std::string_view text, Case to);
// Whether the text is its own lower (upper) case, and has characters that have another.
bool hasOnlyCase(Runtime& rt, std::string_view text, Case wanted);
Value capitalized(Runtime& rt, std::string_view text);
// Python's str.title().
Value titled(Runtime& rt, std::string_view text);

}  // namespace chorus::tmpl
