// A position in the tokens of a template, with the functions that both parsers use to test and consume tokens.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "text/template/lexer.h"

namespace chorus::tmpl {

// Counts how many times each special name of macros has been consumed so far.
struct SpecialNames {
  int varargs = 0, kwargs = 0, caller = 0;
};

class TokenCursor {
 public:
  using Words = std::initializer_list<std::string_view>;

  // Arena and meter must outlive the cursor; the arena keeps what tokens refer to.
  TokenCursor(std::string_view source, Arena& arena, WorkMeter& meter);

  const Token& current() const { return current_; }
  const Token& look() const { return next_; }  // the token after current(), or the end
  // Returns current() and moves past it, unless it is the end.
  Token take();
  const SpecialNames& specialNames() const { return special_names_; }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool isOp(std::string_view op) const { return is(TokenKind::kOperator) && current().text == op; }
  bool isWord(std::string_view word) const { return is(TokenKind::kName) && current().text == word; }
  bool isAnyWord(Words words) const;
  // Consumes the token if it is the expected one; returns whether it was.
  bool skipOp(std::string_view op) { return isOp(op) ? (take(), true) : false; }
  bool skipWord(std::string_view word) { return isWord(word) ? (take(), true) : false; }

  // These throw TemplateSyntaxError with the line of current().
  void expectOp(std::string_view op);
  std::string_view expectName();
  void expectBlockEnd();
  [[noreturn]] void error(std::string message) const;
  // current() as error messages name it.
  std::string describe() const;

 private:
  Lexer lexer_;
  Token current_, next_;
  SpecialNames special_names_;
};

}  // namespace chorus::tmpl
