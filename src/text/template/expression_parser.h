// Jinja's expressions, from tokens to syntax trees. Throws TemplateSyntaxError throughout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/template/ast.h"
#include "text/template/token_cursor.h"

namespace chorus::tmpl {

class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

  // Bounds the depth to which calls of the parser nest while it lives.
  struct Nested {
    explicit Nested(ExpressionParser& p);
    ~Nested() { --parser.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ExpressionParser& parser;
  };

  ExprPtr make(ExprKind kind, std::string name = {}, std::vector<ExprPtr> operands = {});
  // One expression, or several with commas between them, which are a tuple; none is one in parentheses only.
  // with_conditional: "a if b else c" may stand there, and not as a loop's filter.
  ExprPtr parseTuple(bool with_conditional, bool parentheses = false);
  ExprPtr parseExpression(bool with_conditional);
  // The filters that follow, over input.
  ExprPtr parseFilters(ExprPtr input);
  // The name of a filter and its arguments.
  ExprPtr parseOneFilter(ExprPtr input);

 private:
  void deepen(Expr& expr, const Expr* below);
  ExprPtr constant(Value value);
  bool atTupleEnd() const;

  // From the loosest binding to the tightest.
  ExprPtr parseConditional();
  ExprPtr parseOr();
  ExprPtr parseAnd();
  ExprPtr parseNot();
  ExprPtr parseCompare();
  ExprPtr parseMath1();
  ExprPtr parseConcat();
  ExprPtr parseMath2();
  ExprPtr parsePow();
  ExprPtr parseUnary(bool with_filter);
  ExprPtr parsePrimary();

  // What follows an expression: subscripts and calls; filters, tests and calls.
  ExprPtr parsePostfix(ExprPtr expr);
  ExprPtr parseFilterExpr(ExprPtr expr);
  ExprPtr parseSubscript(ExprPtr object);
  ExprPtr parseSubscriptKey();
  ExprPtr parseCall(ExprPtr callee);
  ExprPtr parseTest(ExprPtr input);
  // owner: the expression they belong to, which gets deeper by them.
  std::unique_ptr<Arguments> parseArguments(Expr& owner);
  std::string dottedName();

  int nesting_ = 0;
};

}  // namespace chorus::tmpl
