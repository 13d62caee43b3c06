#include "text/template/token_cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace chorus::tmpl {

TokenCursor::TokenCursor(std::string_view source, Arena& arena, WorkMeter& meter)
    : lexer_(source, arena, meter), current_(lexer_.next()), next_(lexer_.next()) {}

Token TokenCursor::take() {
  const Token token = current_;
  if (token.kind == TokenKind::kEnd) return token;
  if (token.kind == TokenKind::kName) {
    special_names_.varargs += token.text == "varargs";
    special_names_.kwargs += token.text == "kwargs";
    special_names_.caller += token.text == "caller";
  }
  current_ = next_;
  next_ = lexer_.next();
  return token;
}

bool TokenCursor::isAnyWord(Words words) const {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return isWord(word); });
}

void TokenCursor::error(std::string message) const { throw TemplateSyntaxError{std::move(message), current().line}; }

std::string TokenCursor::describe() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    default:
      return printable(current().text);
  }
}

void TokenCursor::expectOp(std::string_view op) {
  if (!skipOp(op)) error(fmt::format("expected token '{}', got '{}'", op, describe()));
}

std::string_view TokenCursor::expectName() {
  if (!is(TokenKind::kName)) error(fmt::format("expected a name, got '{}'", describe()));
  return take().text;
}

void TokenCursor::expectBlockEnd() {
  if (!is(TokenKind::kBlockEnd)) error(fmt::format("expected token 'end of statement block', got '{}'", describe()));
  take();
}

}  // namespace chorus::tmpl
