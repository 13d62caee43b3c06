// Template text to tokens, with Jinja's rules for white space around tags (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  TokenKind kind;
  std::string text;  // of data, names, operators; the value of strings
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Throws TemplateSyntaxError.
std::vector<Token> lex(std::string_view source);

// A template that doesn't parse; the compiler adds the name of the template.
struct TemplateSyntaxError {
  std::string message;
  int line;
};

}  // namespace chorus::tmpl
