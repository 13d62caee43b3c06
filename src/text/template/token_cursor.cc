#include "text/template/token_cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace chorus::tmpl {

const Token& TokenCursor::look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

Token TokenCursor::take() {
  const Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
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

std::string TokenCursor::expectName() {
  if (!is(TokenKind::kName)) error(fmt::format("expected a name, got '{}'", describe()));
  return take().text;
}

void TokenCursor::expectBlockEnd() {
  if (!is(TokenKind::kBlockEnd)) error(fmt::format("expected token 'end of statement block', got '{}'", describe()));
  take();
}

}  // namespace chorus::tmpl
