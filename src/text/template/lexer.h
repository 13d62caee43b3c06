// Splits template text into tokens, with Jinja's rules for white space around tags (trim_blocks and lstrip_blocks on).
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
  std::string_view text;  // text of data, names and operators, value of strings; in the arena
  int64_t integer = 0;
  bool is_wide = false;  // for integers: the value does not fit int64_t, and text holds its digits
  double number = 0;
};

// Returns one token at a time, so that they never all take memory at once. Charges the meter for the text that it
// reads.
class Lexer {
 public:
  // The arena keeps a copy of the source. Arena and meter must outlive the lexer.
  Lexer(std::string_view source, Arena& arena, WorkMeter& meter);

  // At the end of the text every call returns kEnd. Throws TemplateSyntaxError.
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
  std::string open_;  // closing brackets that the tag still needs
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> ready_;  // in reverse order
};

}  // namespace chorus::tmpl
