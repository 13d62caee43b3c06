#include "text/template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace chorus::tmpl {
namespace {

constexpr int kMaxNesting = 60;
constexpr int kMaxExprDepth = 150;

Value integerOf(const Token& token) { return token.is_wide ? Value::wideInteger(token.text) : Value(token.integer); }

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& p) : parser(p) {
  if (parser.nesting_ >= kMaxNesting || parser.stack_.exhausted()) parser.error("the template nests too deep");
  ++parser.nesting_;
}

Expr* ExpressionParser::make(ExprKind kind, std::string_view name, std::initializer_list<const Expr*> operands) {
  return make(kind, name, std::span<const Expr* const>(operands.begin(), operands.size()));
}

Expr* ExpressionParser::make(ExprKind kind, std::string_view name, std::span<const Expr* const> operands) {
  auto* const expr = arena_.make<Expr>(Expr{.kind = kind, .line = current().line, .value = Value::ofText(name)});
  for (const Expr* operand : operands) deepen(*expr, operand);
  expr->count = static_cast<uint32_t>(operands.size());
  if (operands.size() == 1)
    expr->one = operands[0];
  else
    expr->many = arena_.copy(operands).data();
  return expr;
}

void ExpressionParser::deepen(Expr& expr, const Expr* below) {
  if (below == nullptr) return;
  expr.depth = std::max<uint16_t>(expr.depth, static_cast<uint16_t>(below->depth + 1));
  if (expr.depth > kMaxExprDepth) error("an expression nests too deep");
}

const Expr* ExpressionParser::constant(const Value& value) {
  Expr* const expr = make(ExprKind::kConst);
  expr->value = value;
  return expr;
}

bool ExpressionParser::atTupleEnd() const {
  return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || isOp(")") || isWord("recursive");
}

const Expr* ExpressionParser::parseTuple(bool with_conditional, bool parentheses) {
  Operands items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expectOp(",");
    if (atTupleEnd()) break;
    items.push_back(parseExpression(with_conditional));
    if (!isOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!parentheses) error(fmt::format("Expected an expression, got '{}'", describe()));
  }
  return make(ExprKind::kTuple, {}, items);
}

const Expr* ExpressionParser::parseExpression(bool with_conditional) {
  const Nested nested(*this);
  return with_conditional ? parseConditional() : parseBinary(kOrBinds);
}

const Expr* ExpressionParser::parseConditional() {
  const Expr* value = parseBinary(kOrBinds);
  while (skipWord("if")) {
    const Expr* const condition = parseBinary(kOrBinds);
    const Expr* const alternative = skipWord("else") ? parseExpression(true) : nullptr;
    value = make(ExprKind::kConditional, {}, {condition, value, alternative});
  }
  return value;
}

bool ExpressionParser::atOperator(Binding least, Operator& found) const {
  struct Symbol {
    std::string_view text;
    Operator value;
  };
  static constexpr Symbol kWords[] = {
      {"or", {kOrBinds, Op::kAdd}}, {"and", {kAndBinds, Op::kAdd}}, {"in", {kCompareBinds, Op::kIn}}};
  static constexpr Symbol kSymbols[] = {
      {"==", {kCompareBinds, Op::kEq}}, {"!=", {kCompareBinds, Op::kNe}},       {"<", {kCompareBinds, Op::kLt}},
      {"<=", {kCompareBinds, Op::kLe}}, {">", {kCompareBinds, Op::kGt}},        {">=", {kCompareBinds, Op::kGe}},
      {"+", {kSumBinds, Op::kAdd}},     {"-", {kSumBinds, Op::kSub}},           {"~", {kConcatBinds, Op::kAdd}},
      {"*", {kProductBinds, Op::kMul}}, {"//", {kProductBinds, Op::kFloorDiv}}, {"/", {kProductBinds, Op::kDiv}},
      {"%", {kProductBinds, Op::kMod}}, {"**", {kPowerBinds, Op::kPow}}};
  const auto search = [&](std::span<const Symbol> symbols) {
    for (const Symbol& symbol : symbols) {
      if (symbol.text != current().text) continue;
      found = symbol.value;
      return found.binding >= least;
    }
    return false;
  };
  if (is(TokenKind::kOperator)) return search(kSymbols);
  if (!is(TokenKind::kName)) return false;
  if (current().text == "not" && look().kind == TokenKind::kName && look().text == "in") {
    found = {kCompareBinds, Op::kNotIn};
    return found.binding >= least;
  }
  return search(kWords);
}

// A single function handles all binary operators, so that a bracket costs few stack frames.
const Expr* ExpressionParser::parseBinary(Binding least) {
  const Expr* left = nullptr;
  if (least <= kNotBinds && isWord("not")) {
    const Nested nested(*this);
    take();
    left = make(ExprKind::kNot, {}, {parseBinary(kNotBinds)});
  } else {
    left = parseUnary(true);
  }
  for (Operator found; atOperator(least, found);) left = parseRight(left, found);
  return left;
}

const Expr* ExpressionParser::parseRight(const Expr* left, const Operator& found) {
  if (found.binding == kCompareBinds) return parseCompare(left);
  if (found.binding == kConcatBinds) return parseConcat(left);
  take();
  const Expr* const right = parseBinary(static_cast<Binding>(found.binding + 1));
  if (found.binding == kOrBinds) return make(ExprKind::kOr, {}, {left, right});
  if (found.binding == kAndBinds) return make(ExprKind::kAnd, {}, {left, right});
  Expr* const binary = make(ExprKind::kBinary, {}, {left, right});
  binary->op = found.op;
  return binary;
}

const Expr* ExpressionParser::parseCompare(const Expr* left) {
  Operands operands = {left};
  std::string operators;
  for (Operator found; atOperator(kCompareBinds, found) && found.binding == kCompareBinds;) {
    take();
    if (found.op == Op::kNotIn) take();
    operators.push_back(static_cast<char>(found.op));
    operands.push_back(parseBinary(kSumBinds));
  }
  return make(ExprKind::kCompare, arena_.copy(std::string_view(operators)), operands);
}

const Expr* ExpressionParser::parseConcat(const Expr* left) {
  Operands parts = {left};
  while (skipOp("~")) parts.push_back(parseBinary(kProductBinds));
  return make(ExprKind::kConcat, {}, parts);
}

const Expr* ExpressionParser::parseUnary(bool with_filter) {
  const Nested nested(*this);
  const Expr* expr = nullptr;
  if (isOp("-") || isOp("+")) {
    const Op op = take().text == "-" ? Op::kSub : Op::kAdd;
    Expr* const unary = make(ExprKind::kUnary, {}, {parseUnary(false)});
    unary->op = op;
    expr = unary;
  } else {
    expr = parsePrimary();
  }
  expr = parsePostfix(expr);
  return with_filter ? parseFilterExpr(expr) : expr;
}

const Expr* ExpressionParser::parsePrimary() {
  if (is(TokenKind::kName)) return parseNamed();
  if (is(TokenKind::kString)) return parseText();
  if (is(TokenKind::kInteger)) return constant(integerOf(take()));
  if (is(TokenKind::kFloat)) return constant(Value(take().number));
  if (skipOp("(")) {
    const Expr* const tuple = parseTuple(true, true);
    expectOp(")");
    return tuple;
  }
  if (skipOp("[")) return parseList();
  if (skipOp("{")) return parseDict();
  error(fmt::format("unexpected '{}'", describe()));
}

const Expr* ExpressionParser::parseNamed() {
  const std::string_view name = take().text;
  if (name == "true" || name == "True") return constant(Value(true));
  if (name == "false" || name == "False") return constant(Value(false));
  if (name == "none" || name == "None") return constant(Value());
  return make(ExprKind::kName, name);
}

const Expr* ExpressionParser::parseText() {
  std::string_view text = take().text;
  if (is(TokenKind::kString)) {
    std::string joined(text);
    while (is(TokenKind::kString)) joined += take().text;
    text = arena_.copy(std::string_view(joined));
  }
  return constant(Value::ofText(text));
}

const Expr* ExpressionParser::parseList() {
  Operands items;
  while (!isOp("]")) {
    if (!items.empty()) expectOp(",");
    if (isOp("]")) break;
    items.push_back(parseExpression(true));
  }
  take();
  return make(ExprKind::kList, {}, items);
}

const Expr* ExpressionParser::parseDict() {
  Operands items;
  while (!isOp("}")) {
    if (!items.empty()) expectOp(",");
    if (isOp("}")) break;
    items.push_back(parseExpression(true));
    expectOp(":");
    items.push_back(parseExpression(true));
  }
  take();
  return make(ExprKind::kDict, {}, items);
}

const Expr* ExpressionParser::parsePostfix(const Expr* expr) {
  while (true) {
    if (isOp(".") || isOp("["))
      expr = parseSubscript(expr);
    else if (isOp("("))
      expr = parseCall(expr);
    else
      return expr;
  }
}

const Expr* ExpressionParser::parseFilterExpr(const Expr* expr) {
  while (true) {
    if (isOp("|"))
      expr = parseFilters(expr);
    else if (isWord("is"))
      expr = parseTest(expr);
    else if (isOp("("))
      expr = parseCall(expr);
    else
      return expr;
  }
}

const Expr* ExpressionParser::parseSubscript(const Expr* object) {
  if (skipOp(".")) {
    if (is(TokenKind::kName)) return make(ExprKind::kAttribute, take().text, {object});
    if (!is(TokenKind::kInteger)) error("expected name or number");
    const Expr* const index = constant(integerOf(take()));
    return make(ExprKind::kSubscript, {}, {object, index});
  }
  expectOp("[");
  Operands keys;
  while (!isOp("]")) {
    if (!keys.empty()) expectOp(",");
    keys.push_back(parseSubscriptKey());
  }
  take();
  if (keys.empty()) error("expected subscript expression");
  return make(ExprKind::kSubscript, {}, {object, keys.size() == 1 ? keys[0] : make(ExprKind::kTuple, {}, keys)});
}

const Expr* ExpressionParser::parseSubscriptKey() {
  const Expr *start = nullptr, *stop = nullptr, *step = nullptr;
  if (!isOp(":")) {
    start = parseExpression(true);
    if (!isOp(":")) return start;
  }
  expectOp(":");
  const auto ended = [&] { return isOp("]") || isOp(",") || isOp(":"); };
  if (!ended()) stop = parseExpression(true);
  if (skipOp(":") && !ended()) step = parseExpression(true);
  return make(ExprKind::kSlice, {}, {start, stop, step});
}

const Arguments* ExpressionParser::parseArguments(Expr& owner) {
  Operands positional;
  std::vector<Arguments::Named> named;
  const Expr *star = nullptr, *double_star = nullptr;
  expectOp("(");
  bool first = true;
  while (!isOp(")")) {
    if (!first) expectOp(",");
    if (isOp(")")) break;
    first = false;
    const Expr* parsed = nullptr;
    if (skipOp("*")) {
      if (star != nullptr || double_star != nullptr) error("invalid syntax for function call expression");
      parsed = star = parseExpression(true);
    } else if (skipOp("**")) {
      if (double_star != nullptr) error("invalid syntax for function call expression");
      parsed = double_star = parseExpression(true);
    } else if (is(TokenKind::kName) && look().kind == TokenKind::kOperator && look().text == "=") {
      if (double_star != nullptr) error("invalid syntax for function call expression");
      const std::string_view name = take().text;
      take();
      parsed = parseExpression(true);
      named.push_back({name, parsed});
    } else {
      if (star != nullptr || double_star != nullptr || !named.empty()) {
        error("invalid syntax for function call expression");
      }
      parsed = parseExpression(true);
      positional.push_back(parsed);
    }
    deepen(owner, parsed);
  }
  take();
  if (first) return nullptr;
  return arena_.make<Arguments>(Arguments{.positional = arena_.copy(std::span<const Expr* const>(positional)),
                                          .named = arena_.copy(std::span<const Arguments::Named>(named)),
                                          .star = star,
                                          .double_star = double_star});
}

const Expr* ExpressionParser::parseCall(const Expr* callee) {
  Expr* const call = make(ExprKind::kCall, {}, {callee});
  call->arguments = parseArguments(*call);
  return call;
}

std::string_view ExpressionParser::dottedName() {
  const std::string_view first = expectName();
  if (!isOp(".")) return first;
  std::string name(first);
  while (skipOp(".")) name.append(1, '.').append(expectName());
  return arena_.copy(std::string_view(name));
}

const Expr* ExpressionParser::parseOneFilter(const Expr* input) {
  const std::string_view name = dottedName();
  Expr* const filter = make(ExprKind::kFilter, name, {input});
  if (isOp("(")) filter->arguments = parseArguments(*filter);
  return filter;
}

const Expr* ExpressionParser::parseFilters(const Expr* input) {
  while (skipOp("|")) input = parseOneFilter(input);
  return input;
}

const Expr* ExpressionParser::parseTest(const Expr* input) {
  take();
  const bool negated = skipWord("not");
  const std::string_view name = dottedName();
  Expr* const test = make(ExprKind::kTest, name, {input});
  if (isOp("(")) {
    test->arguments = parseArguments(*test);
  } else if ((is(TokenKind::kName) || is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) ||
              isOp("[") || isOp("{")) &&
             !isAnyWord({"else", "or", "and"})) {
    if (isWord("is")) error("You cannot chain multiple tests with is");
    const Nested nested(*this);
    const Expr* const argument = parsePostfix(parsePrimary());
    test->arguments = arena_.make<Arguments>(
        Arguments{.positional = arena_.copy(std::span<const Expr* const>(&argument, 1)), .named = {}});
    deepen(*test, argument);
  }
  return negated ? make(ExprKind::kNot, {}, {test}) : test;
}

}  // namespace chorus::tmpl
