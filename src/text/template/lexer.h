// Template text to tokens, with Jinja's rules for white space around tags (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_meter.h"
#include "text/template/arena.h"
#include "text/template/template_error.h"

namespace chorus::tmpl {

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string_view text;  // of data, names, operators; the value of strings; in the arena
  int64_t integer = 0;
  bool is_wide = false;  // of integers: text is its digits, which int64_t can't hold
  double number = 0;
};

// Gives one token after the other, so that they never all take memory at once. Charges the meter for what it reads.
class Lexer {
 public:
  // The arena keeps a copy of the source. Arena and meter outlive the lexer.
  Lexer(std::string_view source, Arena& arena, WorkMeter& meter);

  // kEnd at the end, again and again. Throws TemplateSyntaxError.
  Token next();

 private:
  enum class Mode { kData, kBlock, kVariable };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char signAt(size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }
  void add(TokenKind kind, std::string_view text);
  void advanceTo(size_t to);
  size_t findTag(size_t from) const;
  std::string_view stripBeforeTag(std::string_view data, char sign, bool is_variable) const;
  size_t afterBlockEnd(size_t end, char sign) const;
  void lexData();
  void lexComment();
  bool lexRaw();
  void lexInTag();
  bool lexTagEnd();
  void lexName();
  size_t digitsEnd(size_t at) const;
  size_t fractionEnd(size_t digits_end) const;
  void lexNumber();
  void lexString(char quote);
  std::string_view unescaped(std::string_view raw);
  void lexOperator();

  Arena& arena_;
  WorkMeter& meter_;
  std::string_view text_;
  Mode mode_ = Mode::kData;
  std::string open_;  // brackets of the tag that are not closed yet
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> ready_;  // in reverse
};

}  // namespace chorus::tmpl
