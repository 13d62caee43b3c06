// A place among a template's tokens: what both parsers look at, take and expect.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "text/template/lexer.h"

namespace chorus::tmpl {

// How often the names that a macro treats specially were taken so far.
struct SpecialNames {
  int varargs = 0, kwargs = 0, caller = 0;
};

class TokenCursor {
 public:
  using Words = std::initializer_list<std::string_view>;

  // Arena and meter outlive it; the arena keeps what tokens refer to.
  TokenCursor(std::string_view source, Arena& arena, WorkMeter& meter);

  const Token& current() const { return current_; }
  const Token& look() const { return next_; }  // the one after current(), or the end
  // current(); steps over it unless it is the end.
  Token take();
  const SpecialNames& specialNames() const { return special_names_; }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool isOp(std::string_view op) const { return is(TokenKind::kOperator) && current().text == op; }
  bool isWord(std::string_view word) const { return is(TokenKind::kName) && current().text == word; }
  bool isAnyWord(Words words) const;
  // Whether it was there, and then is behind.
  bool skipOp(std::string_view op) { return isOp(op) ? (take(), true) : false; }
  bool skipWord(std::string_view word) { return isWord(word) ? (take(), true) : false; }

  // These throw TemplateSyntaxError with the line of current().
  void expectOp(std::string_view op);
  std::string_view expectName();
  void expectBlockEnd();
  [[noreturn]] void error(std::string message) const;
  // current() as messages name it.
  std::string describe() const;

 private:
  Lexer lexer_;
  Token current_, next_;
  SpecialNames special_names_;
};

}  // namespace chorus::tmpl
