// A place among a template's tokens: what both parsers look at, take and expect.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/lexer.h"

namespace chorus::tmpl {

class TokenCursor {
 public:
  using Words = std::initializer_list<std::string_view>;

  // tokens: ended by kEnd.
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const;  // the one after current(), or the end
  size_t position() const { return at_; }
  const Token& at(size_t position) const { return tokens_[position]; }
  // current(); steps over it unless it is the end.
  Token take();

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool isOp(std::string_view op) const { return is(TokenKind::kOperator) && current().text == op; }
  bool isWord(std::string_view word) const { return is(TokenKind::kName) && current().text == word; }
  bool isAnyWord(Words words) const;
  // Whether it was there, and then is behind.
  bool skipOp(std::string_view op) { return isOp(op) ? (take(), true) : false; }
  bool skipWord(std::string_view word) { return isWord(word) ? (take(), true) : false; }

  // These throw TemplateSyntaxError with the line of current().
  void expectOp(std::string_view op);
  std::string expectName();
  void expectBlockEnd();
  [[noreturn]] void error(std::string message) const;
  // current() as messages name it.
  std::string describe() const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace chorus::tmpl
