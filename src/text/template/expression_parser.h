// Jinja's expressions, from tokens to syntax trees. Throws TemplateSyntaxError throughout.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/stack_guard.h"
#include "text/template/token_cursor.h"

namespace chorus::tmpl {

class ExpressionParser : protected TokenCursor {
 protected:
  using Operands = std::vector<const Expr*>;

  ExpressionParser(std::string_view source, Arena& arena, WorkMeter& meter)
      : TokenCursor(source, arena, meter), arena_(arena) {}

  // Bounds the depth to which calls of the parser nest while it lives.
  struct Nested {
    explicit Nested(ExpressionParser& p);
    ~Nested() { --parser.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ExpressionParser& parser;
  };

  Expr* make(ExprKind kind, std::string_view name = {}, std::initializer_list<const Expr*> operands = {});
  Expr* make(ExprKind kind, std::string_view name, std::span<const Expr* const> operands);
  // One expression, or several with commas between them, which are a tuple; none is one in parentheses only.
  // with_conditional: "a if b else c" may stand there, and not as a loop's filter.
  const Expr* parseTuple(bool with_conditional, bool parentheses = false);
  const Expr* parseExpression(bool with_conditional);
  // The filters that follow, over input.
  const Expr* parseFilters(const Expr* input);
  // The name of a filter and its arguments.
  const Expr* parseOneFilter(const Expr* input);

  Arena& arena() { return arena_; }

 private:
  // How tightly an operator binds; each is parsed with what binds tighter on both sides.
  enum Binding {
    kOrBinds,
    kAndBinds,
    kNotBinds,
    kCompareBinds,
    kSumBinds,
    kConcatBinds,
    kProductBinds,
    kPowerBinds,
    kUnaryBinds
  };
  struct Operator {
    Binding binding;
    Op op;
  };

  void deepen(Expr& expr, const Expr* below);
  const Expr* constant(const Value& value);
  bool atTupleEnd() const;

  const Expr* parseConditional();
  // The operator at the cursor, which binds at least as tightly; false when there is none.
  bool atOperator(Binding least, Operator& found) const;
  const Expr* parseBinary(Binding least);
  const Expr* parseRight(const Expr* left, const Operator& found);
  const Expr* parseCompare(const Expr* left);
  const Expr* parseConcat(const Expr* left);
  const Expr* parseUnary(bool with_filter);
  const Expr* parsePrimary();
  const Expr* parseNamed();
  const Expr* parseText();
  const Expr* parseList();
  const Expr* parseDict();

  // What follows an expression: subscripts and calls; filters, tests and calls.
  const Expr* parsePostfix(const Expr* expr);
  const Expr* parseFilterExpr(const Expr* expr);
  const Expr* parseSubscript(const Expr* object);
  const Expr* parseSubscriptKey();
  const Expr* parseCall(const Expr* callee);
  const Expr* parseTest(const Expr* input);
  // owner: the expression they belong to, which gets deeper by them. Null when there are none.
  const Arguments* parseArguments(Expr& owner);
  std::string_view dottedName();

  Arena& arena_;
  StackGuard stack_;
  int nesting_ = 0;
};

}  // namespace chorus::tmpl
