#include "text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/utf8.h"
#include "text/template/text_scan.h"
#include "text/template/wide_integer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

[[noreturn]] void syntaxError(std::string message, int line) { throw TemplateSyntaxError{std::move(message), line}; }

size_t spaceEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = decodeUtf8(text.substr(at));
    if (!isPythonSpace(step.code)) break;
    at += static_cast<size_t>(step.length);
  }
  return at;
}

size_t trailingSpaceBegin(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!isPythonSpace(decodeUtf8(text.substr(start)).code)) break;
    end = start;
  }
  return end;
}

bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool isDigit(char c) { return c >= '0' && c <= '9'; }

// All line ends become \n, and one at the very end is dropped.
std::string normalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool matchWord(std::string_view text, size_t& at, std::string_view word) {
  const size_t begin = spaceEnd(text, at);
  if (!text.substr(begin).starts_with(word)) return false;
  at = begin + word.size();
  return true;
}
}  // namespace

Lexer::Lexer(std::string_view source, Arena& arena, WorkMeter& meter) : arena_(arena), meter_(meter) {
  meter_.charge(4 * source.size());
  const bool plain = source.find('\r') == kNotFound && isUtf8(source);
  if (source.ends_with('\n') && plain) source.remove_suffix(1);
  text_ = arena_.copy(plain ? source : std::string_view(normalizeLines(toValidUtf8(source))));
}

Token Lexer::next() {
  if (ready_.empty()) {
    const size_t before = at_;
    while (ready_.empty() && at_ < text_.size()) {
      if (mode_ == Mode::kData)
        lexData();
      else
        lexInTag();
    }
    if (ready_.empty() && mode_ != Mode::kData) syntaxError("unexpected end of template", line_);
    if (ready_.empty()) add(TokenKind::kEnd, "");
    meter_.charge(WorkMeter::kObject + 4 * (at_ - before));
    std::reverse(ready_.begin(), ready_.end());
  }
  const Token token = ready_.back();
  ready_.pop_back();
  return token;
}

void Lexer::add(TokenKind kind, std::string_view text) {
  ready_.push_back({.kind = kind, .line = line_, .text = text, .integer = 0, .number = 0});
}

void Lexer::advanceTo(size_t to) {
  line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                       text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
  if (to > at_) line_starting_ = text_[to - 1] == '\n';
  at_ = to;
}

size_t Lexer::findTag(size_t from) const {
  for (size_t i = from; (i = text_.find('{', i)) != std::string::npos; ++i) {
    const char next = i + 1 < text_.size() ? text_[i + 1] : '\0';
    if (next == '%' || next == '{' || next == '#') return i;
  }
  return kNotFound;
}

// Returns what remains of data before a tag with the given sign. A variable tag keeps the white space of its line.
std::string_view Lexer::stripBeforeTag(std::string_view data, char sign, bool is_variable) const {
  if (sign == '-') return data.substr(0, trailingSpaceBegin(data));
  if (sign == '+' || is_variable) return data;
  const size_t newline = data.rfind('\n');
  const size_t line = newline == kNotFound ? 0 : newline + 1;
  if ((line > 0 || line_starting_) && line < data.size() && spaceEnd(data, line) == data.size()) {
    return data.substr(0, line);
  }
  return data;
}

void Lexer::lexData() {
  const size_t tag = findTag(at_);
  if (tag == kNotFound) {
    add(TokenKind::kData, text_.substr(at_));
    advanceTo(text_.size());
    return;
  }
  const char type = text_[tag + 1];
  size_t after = tag + 2;
  const char sign = signAt(after);
  const std::string_view data = stripBeforeTag(text_.substr(at_, tag - at_), sign, type == '{');
  if (!data.empty()) add(TokenKind::kData, data);
  if (sign != '\0') ++after;
  advanceTo(after);
  if (type == '#') return lexComment();
  if (type == '%' && lexRaw()) return;
  add(type == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
  mode_ = type == '%' ? Mode::kBlock : Mode::kVariable;
  open_.clear();
}

// Returns where the text continues after a block or comment: -%} skips all white space, %} one newline, +%} nothing.
size_t Lexer::afterBlockEnd(size_t end, char sign) const {
  if (sign == '-') return spaceEnd(text_, end);
  return sign != '+' && end < text_.size() && text_[end] == '\n' ? end + 1 : end;
}

void Lexer::lexComment() {
  const size_t end = text_.find("#}", at_);
  if (end == std::string::npos) syntaxError("Missing end of comment tag", line_);
  const char sign = end > at_ ? text_[end - 1] : '\0';
  advanceTo(afterBlockEnd(end + 2, sign));
}

bool Lexer::lexRaw() {
  size_t at = at_;
  if (!matchWord(text_, at, "raw")) return false;
  at = spaceEnd(text_, at);
  if (text_.substr(at).starts_with("-%}"))
    at = spaceEnd(text_, at + 3);
  else if (text_.substr(at).starts_with("%}"))
    at += 2;
  else
    return false;
  const int line = line_;
  advanceTo(at);
  for (size_t open = at; (open = text_.find("{%", open)) != std::string::npos; ++open) {
    size_t end = open + 2;
    const char sign = signAt(end);
    if (sign != '\0') ++end;
    if (!matchWord(text_, end, "endraw")) continue;
    end = spaceEnd(text_, end);
    const char end_sign = signAt(end);
    if (end_sign != '\0') ++end;
    if (!text_.substr(end).starts_with("%}")) continue;
    const std::string_view data = stripBeforeTag(text_.substr(at_, open - at_), sign, false);
    if (!data.empty()) add(TokenKind::kData, data);
    advanceTo(afterBlockEnd(end + 2, end_sign));
    return true;
  }
  syntaxError("Missing end of raw directive", line);
}

bool Lexer::lexTagEnd() {
  const bool block = mode_ == Mode::kBlock;
  const std::string_view rest = text_.substr(at_);
  const std::string_view close = block ? "%}" : "}}";
  const bool sign =
      rest.size() > 2 && (rest[0] == '-' || (rest[0] == '+' && block)) && rest.substr(1).starts_with(close);
  if (!sign && !rest.starts_with(close)) return false;
  const size_t end = at_ + (sign ? 3 : 2);
  mode_ = Mode::kData;
  add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
  if (block)
    advanceTo(afterBlockEnd(end, sign ? rest[0] : '\0'));
  else
    advanceTo(sign ? spaceEnd(text_, end) : end);
  return true;
}

void Lexer::lexInTag() {
  advanceTo(spaceEnd(text_, at_));
  if (at_ >= text_.size()) syntaxError("unexpected end of template", line_);
  if (open_.empty() && lexTagEnd()) return;
  const char c = peek();
  if (isDigit(c))
    lexNumber();
  else if (isNameStart(c))
    lexName();
  else if (c == '\'' || c == '"')
    lexString(c);
  else
    lexOperator();
}

void Lexer::lexName() {
  size_t end = at_;
  while (end < text_.size() && (isNameStart(text_[end]) || isDigit(text_[end]))) ++end;
  add(TokenKind::kName, text_.substr(at_, end - at_));
  advanceTo(end);
}

size_t Lexer::digitsEnd(size_t at) const {
  while (at < text_.size() &&
         (isDigit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && isDigit(text_[at + 1]))))
    ++at;
  return at;
}

// The end of a float whose integer part ends at digits_end; npos if the number is an integer.
size_t Lexer::fractionEnd(size_t digits_end) const {
  size_t end = kNotFound, at = digits_end;
  if (at + 1 < text_.size() && text_[at] == '.' && isDigit(text_[at + 1])) end = at = digitsEnd(at + 1);
  if (at >= text_.size() || (text_[at] | 0x20) != 'e') return end;
  ++at;
  if (signAt(at) != '\0') ++at;
  return at < text_.size() && isDigit(text_[at]) ? digitsEnd(at) : end;
}

void Lexer::lexNumber() {
  size_t end = digitsEnd(at_);
  const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
  const size_t float_end = after_dot ? kNotFound : fractionEnd(end);
  const bool is_float = float_end != kNotFound;
  if (is_float) end = float_end;
  std::string digits(text_.substr(at_, end - at_));
  int base = 10;
  if (digits == "0" && end < text_.size()) {
    const char mark = static_cast<char>(text_[end] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) {
      const size_t begin = ++end;
      while (end < text_.size() && (isDigit(text_[end]) || text_[end] == '_' ||
                                    (base == 16 && std::isxdigit(static_cast<unsigned char>(text_[end])))))
        ++end;
      digits = text_.substr(begin, end - begin);
    }
  } else if (!is_float && digits.size() > 1 && digits[0] == '0' &&
             digits.find_first_not_of("0_") != std::string::npos) {
    syntaxError("an integer must not begin with 0", line_);
  }
  std::erase(digits, '_');
  add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text_.substr(at_, end - at_));
  errno = 0;
  char* stop = nullptr;
  if (is_float)
    ready_.back().number = std::strtod(digits.c_str(), &stop);
  else
    ready_.back().integer = std::strtoll(digits.c_str(), &stop, base);
  if (digits.empty() || *stop != '\0') syntaxError("malformed number", line_);
  if (!is_float && errno == ERANGE) {
    if (digits.size() > kMaxDigits) syntaxError(fmt::format("a number of more than {} digits", kMaxDigits), line_);
    if (base != 10) syntaxError(fmt::format("a number of base {} that doesn't fit 64 bits", base), line_);
    ready_.back().is_wide = true;
    ready_.back().text = arena_.copy(digits);
  }
  advanceTo(end);
}

void Lexer::lexString(char quote) {
  size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size()) syntaxError("unterminated string", line_);
  add(TokenKind::kString, unescaped(text_.substr(at_ + 1, end - at_ - 1)));
  advanceTo(end + 1);
}

std::string_view Lexer::unescaped(std::string_view raw) {
  if (raw.find('\\') == kNotFound) return raw;
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      out.push_back(raw[i]);
      continue;
    }
    const char c = raw[++i];
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t k = kFrom.find(c); k != kNotFound) {
      out.push_back(kTo[k]);
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t n = 0;
      while (n < 3 && i + n < raw.size() && raw[i + n] >= '0' && raw[i + n] <= '7')
        code = code * 8 + static_cast<uint32_t>(raw[i + n++] - '0');
      appendUtf8(out, code);
      i += n - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string hex(raw.substr(i + 1, n));
      if (hex.size() != n || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        syntaxError("malformed escape in a string", line_);
      }
      const auto code = static_cast<uint32_t>(std::strtoul(hex.c_str(), nullptr, 16));
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        syntaxError("an escape in a string is not a Unicode character", line_);
      appendUtf8(out, code);
      i += n;
    } else if (c == 'N') {
      syntaxError("\\N{...} escapes are not supported", line_);
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return arena_.copy(out);
}

void Lexer::lexOperator() {
  for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
    if (text_.substr(at_).starts_with(op)) {
      add(TokenKind::kOperator, text_.substr(at_, 2));
      return advanceTo(at_ + 2);
    }
  }
  const char c = peek();
  if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == kNotFound) {
    syntaxError(fmt::format("unexpected char '{}'", printable(text_.substr(at_, static_cast<size_t>(utf8Length(c))))),
                line_);
  }
  if (c == '(' || c == '[' || c == '{') {
    if (open_.size() >= 200) syntaxError("brackets nest deeper than 200 levels", line_);
    open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (open_.empty() || open_.back() != c) syntaxError(fmt::format("unexpected '{}'", c), line_);
    open_.pop_back();
  }
  add(TokenKind::kOperator, text_.substr(at_, 1));
  advanceTo(at_ + 1);
}

}  // namespace chorus::tmpl
