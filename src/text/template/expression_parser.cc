#include "text/template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chorus::tmpl {
namespace {

constexpr int kMaxNesting = 60;
constexpr int kMaxExprDepth = 150;

template <typename... E>
std::vector<ExprPtr> list(E... e) {
  std::vector<ExprPtr> out;
  (out.push_back(std::move(e)), ...);
  return out;
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& p) : parser(p) {
  if (++parser.nesting_ > kMaxNesting) parser.error("the template nests too deep");
}

ExprPtr ExpressionParser::make(ExprKind kind, std::string name, std::vector<ExprPtr> operands) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  expr->name = std::move(name);
  for (const ExprPtr& operand : operands) deepen(*expr, operand.get());
  expr->operands = std::move(operands);
  return expr;
}

void ExpressionParser::deepen(Expr& expr, const Expr* below) {
  if (below == nullptr) return;
  expr.depth = std::max(expr.depth, below->depth + 1);
  if (expr.depth > kMaxExprDepth) error("an expression nests too deep");
}

ExprPtr ExpressionParser::constant(Value value) {
  ExprPtr expr = make(ExprKind::kConst);
  expr->value = std::move(value);
  return expr;
}

bool ExpressionParser::atTupleEnd() const {
  return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || isOp(")") || isWord("recursive");
}

ExprPtr ExpressionParser::parseTuple(bool with_conditional, bool parentheses) {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expectOp(",");
    if (atTupleEnd()) break;
    items.push_back(parseExpression(with_conditional));
    if (!isOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parentheses) error(fmt::format("Expected an expression, got '{}'", describe()));
  }
  return make(ExprKind::kTuple, {}, std::move(items));
}

ExprPtr ExpressionParser::parseExpression(bool with_conditional) {
  const Nested nested(*this);
  return with_conditional ? parseConditional() : parseOr();
}

ExprPtr ExpressionParser::parseConditional() {
  ExprPtr value = parseOr();
  while (skipWord("if")) {
    ExprPtr condition = parseOr();
    ExprPtr alternative = skipWord("else") ? parseExpression(true) : nullptr;
    value = make(ExprKind::kConditional, {}, list(std::move(condition), std::move(value), std::move(alternative)));
  }
  return value;
}

ExprPtr ExpressionParser::parseOr() {
  ExprPtr left = parseAnd();
  while (skipWord("or")) left = make(ExprKind::kOr, {}, list(std::move(left), parseAnd()));
  return left;
}

ExprPtr ExpressionParser::parseAnd() {
  ExprPtr left = parseNot();
  while (skipWord("and")) left = make(ExprKind::kAnd, {}, list(std::move(left), parseNot()));
  return left;
}

ExprPtr ExpressionParser::parseNot() {
  const Nested nested(*this);
  if (skipWord("not")) return make(ExprKind::kNot, {}, list(parseNot()));
  return parseCompare();
}

ExprPtr ExpressionParser::parseCompare() {
  ExprPtr left = parseMath1();
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;
  while (true) {
    std::string op;
    if (is(TokenKind::kOperator) && (current().text == "==" || current().text == "!=" || current().text == "<" ||
                                     current().text == "<=" || current().text == ">" || current().text == ">=")) {
      op = take().text;
    } else if (skipWord("in")) {
      op = "in";
    } else if (isWord("not") && look().kind == TokenKind::kName && look().text == "in") {
      take(), take();
      op = "not in";
    } else {
      break;
    }
    if (operands.empty()) operands.push_back(std::move(left));
    operators.push_back(std::move(op));
    operands.push_back(parseMath1());
  }
  if (operators.empty()) return left;
  ExprPtr compare = make(ExprKind::kCompare, {}, std::move(operands));
  compare->operators = std::move(operators);
  return compare;
}

ExprPtr ExpressionParser::parseMath1() {
  ExprPtr left = parseConcat();
  while (isOp("+") || isOp("-")) {
    std::string op = take().text;
    left = make(ExprKind::kBinary, std::move(op), list(std::move(left), parseConcat()));
  }
  return left;
}

ExprPtr ExpressionParser::parseConcat() {
  std::vector<ExprPtr> parts;
  parts.push_back(parseMath2());
  while (skipOp("~")) parts.push_back(parseMath2());
  return parts.size() == 1 ? std::move(parts[0]) : make(ExprKind::kConcat, {}, std::move(parts));
}

ExprPtr ExpressionParser::parseMath2() {
  ExprPtr left = parsePow();
  while (isOp("*") || isOp("/") || isOp("//") || isOp("%")) {
    std::string op = take().text;
    left = make(ExprKind::kBinary, std::move(op), list(std::move(left), parsePow()));
  }
  return left;
}

ExprPtr ExpressionParser::parsePow() {
  ExprPtr left = parseUnary(true);
  while (skipOp("**")) left = make(ExprKind::kBinary, "**", list(std::move(left), parseUnary(true)));
  return left;
}

ExprPtr ExpressionParser::parseUnary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr expr;
  if (isOp("-") || isOp("+")) {
    std::string op = take().text;
    expr = make(ExprKind::kUnary, std::move(op), list(parseUnary(false)));
  } else {
    expr = parsePrimary();
  }
  expr = parsePostfix(std::move(expr));
  return with_filter ? parseFilterExpr(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parsePrimary() {
  if (is(TokenKind::kName)) {
    const std::string name = take().text;
    if (name == "true" || name == "True") return constant(Value(true));
    if (name == "false" || name == "False") return constant(Value(false));
    if (name == "none" || name == "None") return constant(Value());
    return make(ExprKind::kName, name);
  }
  if (is(TokenKind::kString)) {
    std::string text;
    while (is(TokenKind::kString)) text += take().text;
    return constant(Value(std::move(text)));
  }
  if (is(TokenKind::kInteger)) return constant(Value(take().integer));
  if (is(TokenKind::kFloat)) return constant(Value(take().number));
  if (skipOp("(")) {
    ExprPtr tuple = parseTuple(true, true);
    expectOp(")");
    return tuple;
  }
  if (skipOp("[")) {
    std::vector<ExprPtr> items;
    while (!isOp("]")) {
      if (!items.empty()) expectOp(",");
      if (isOp("]")) break;
      items.push_back(parseExpression(true));
    }
    take();
    return make(ExprKind::kList, {}, std::move(items));
  }
  if (skipOp("{")) {
    std::vector<ExprPtr> items;
    while (!isOp("}")) {
      if (!items.empty()) expectOp(",");
      if (isOp("}")) break;
      items.push_back(parseExpression(true));
      expectOp(":");
      items.push_back(parseExpression(true));
    }
    take();
    return make(ExprKind::kDict, {}, std::move(items));
  }
  error(fmt::format("unexpected '{}'", describe()));
}

ExprPtr ExpressionParser::parsePostfix(ExprPtr expr) {
  while (true) {
    if (isOp(".") || isOp("["))
      expr = parseSubscript(std::move(expr));
    else if (isOp("("))
      expr = parseCall(std::move(expr));
    else
      return expr;
  }
}

ExprPtr ExpressionParser::parseFilterExpr(ExprPtr expr) {
  while (true) {
    if (isOp("|"))
      expr = parseFilters(std::move(expr));
    else if (isWord("is"))
      expr = parseTest(std::move(expr));
    else if (isOp("("))
      expr = parseCall(std::move(expr));
    else
      return expr;
  }
}

ExprPtr ExpressionParser::parseSubscript(ExprPtr object) {
  if (skipOp(".")) {
    if (is(TokenKind::kName)) {
      std::string name = take().text;
      return make(ExprKind::kAttribute, std::move(name), list(std::move(object)));
    }
    if (!is(TokenKind::kInteger)) error("expected name or number");
    ExprPtr index = constant(Value(take().integer));
    return make(ExprKind::kSubscript, {}, list(std::move(object), std::move(index)));
  }
  expectOp("[");
  std::vector<ExprPtr> keys;
  while (!isOp("]")) {
    if (!keys.empty()) expectOp(",");
    keys.push_back(parseSubscriptKey());
  }
  take();
  if (keys.empty()) error("expected subscript expression");
  ExprPtr key = keys.size() == 1 ? std::move(keys[0]) : make(ExprKind::kTuple, {}, std::move(keys));
  return make(ExprKind::kSubscript, {}, list(std::move(object), std::move(key)));
}

ExprPtr ExpressionParser::parseSubscriptKey() {
  ExprPtr start, stop, step;
  if (!isOp(":")) {
    start = parseExpression(true);
    if (!isOp(":")) return start;
  }
  expectOp(":");
  const auto ended = [&] { return isOp("]") || isOp(",") || isOp(":"); };
  if (!ended()) stop = parseExpression(true);
  if (skipOp(":") && !ended()) step = parseExpression(true);
  return make(ExprKind::kSlice, {}, list(std::move(start), std::move(stop), std::move(step)));
}

std::unique_ptr<Arguments> ExpressionParser::parseArguments(Expr& owner) {
  auto arguments = std::make_unique<Arguments>();
  expectOp("(");
  bool first = true;
  while (!isOp(")")) {
    if (!first) expectOp(",");
    if (isOp(")")) break;
    first = false;
    Expr* parsed = nullptr;
    if (skipOp("*")) {
      if (arguments->star || arguments->double_star) error("invalid syntax for function call expression");
      parsed = (arguments->star = parseExpression(true)).get();
    } else if (skipOp("**")) {
      if (arguments->double_star) error("invalid syntax for function call expression");
      parsed = (arguments->double_star = parseExpression(true)).get();
    } else if (is(TokenKind::kName) && look().kind == TokenKind::kOperator && look().text == "=") {
      if (arguments->double_star) error("invalid syntax for function call expression");
      std::string name = take().text;
      take();
      arguments->named.emplace_back(std::move(name), parseExpression(true));
      parsed = arguments->named.back().second.get();
    } else {
      if (arguments->star || arguments->double_star || !arguments->named.empty()) {
        error("invalid syntax for function call expression");
      }
      arguments->positional.push_back(parseExpression(true));
      parsed = arguments->positional.back().get();
    }
    deepen(owner, parsed);
  }
  take();
  return arguments;
}

ExprPtr ExpressionParser::parseCall(ExprPtr callee) {
  ExprPtr call = make(ExprKind::kCall, {}, list(std::move(callee)));
  call->arguments = parseArguments(*call);
  return call;
}

std::string ExpressionParser::dottedName() {
  std::string name = expectName();
  while (skipOp(".")) name.append(1, '.').append(expectName());
  return name;
}

ExprPtr ExpressionParser::parseOneFilter(ExprPtr input) {
  ExprPtr filter = make(ExprKind::kFilter, dottedName(), list(std::move(input)));
  filter->arguments = isOp("(") ? parseArguments(*filter) : std::make_unique<Arguments>();
  return filter;
}

ExprPtr ExpressionParser::parseFilters(ExprPtr input) {
  while (skipOp("|")) input = parseOneFilter(std::move(input));
  return input;
}

ExprPtr ExpressionParser::parseTest(ExprPtr input) {
  take();
  const bool negated = skipWord("not");
  ExprPtr test = make(ExprKind::kTest, dottedName(), list(std::move(input)));
  test->arguments = std::make_unique<Arguments>();
  if (isOp("(")) {
    test->arguments = parseArguments(*test);
  } else if ((is(TokenKind::kName) || is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) ||
              isOp("[") || isOp("{")) &&
             !isAnyWord({"else", "or", "and"})) {
    if (isWord("is")) error("You cannot chain multiple tests with is");
    test->arguments->positional.push_back(parsePostfix(parsePrimary()));
    deepen(*test, test->arguments->positional[0].get());
  }
  return negated ? make(ExprKind::kNot, {}, list(std::move(test))) : std::move(test);
}

}  // namespace chorus::tmpl
