// Parses Jinja's expressions: tokens to syntax trees. All functions throw TemplateSyntaxError.
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

  // Limits how deep calls of the parser nest, for as long as this object exists.
  struct Nested {
    explicit Nested(ExpressionParser& p);
    ~Nested() { --parser.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ExpressionParser& parser;
  };

  Expr* make(ExprKind kind, std::string_view name = {}, std::initializer_list<const Expr*> operands = {});
  Expr* make(ExprKind kind, std::string_view name, std::span<const Expr* const> operands);
  // Parses one expression, or several separated by commas, which form a tuple. An empty tuple is allowed only in
  // parentheses. with_conditional: accepts "a if b else c"; false for the condition of an if statement and the iterable
  // of a for statement.
  const Expr* parseTuple(bool with_conditional, bool parentheses = false);
  const Expr* parseExpression(bool with_conditional);
  // Parses the filters that follow, applied to input.
  const Expr* parseFilters(const Expr* input);
  // Parses the name of a filter and its arguments.
  const Expr* parseOneFilter(const Expr* input);

  Arena& arena() { return arena_; }

 private:
  // How tightly operators bind, in ascending order. The operands of an operator are parsed with tighter bindings.
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
  // Returns true if the operator at the cursor binds at least as tightly as `least`, and sets found.
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

  // These parse what follows an expression: parsePostfix subscripts and calls; parseFilterExpr filters, tests and
  // calls.
  const Expr* parsePostfix(const Expr* expr);
  const Expr* parseFilterExpr(const Expr* expr);
  const Expr* parseSubscript(const Expr* object);
  const Expr* parseSubscriptKey();
  const Expr* parseCall(const Expr* callee);
  const Expr* parseTest(const Expr* input);
  // owner: the expression to which the arguments belong; its depth is updated. Returns null if there are none.
  const Arguments* parseArguments(Expr& owner);
  std::string_view dottedName();

  Arena& arena_;
  StackGuard stack_;
  int nesting_ = 0;
};

}  // namespace chorus::tmpl
