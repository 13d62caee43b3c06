#include "text/template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "text/template/lexer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

constexpr int kMaxNesting = 60;
constexpr int kMaxExprDepth = 150;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() { return parseBody({}); }

 private:
  using Words = std::initializer_list<std::string_view>;
  struct Nested {
    explicit Nested(Parser& p) : parser(p) {
      if (++parser.nesting_ > kMaxNesting) parser.error("the template nests too deep");
    }
    ~Nested() { --parser.nesting_; }
    Parser& parser;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    const Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool isOp(std::string_view op) const { return is(TokenKind::kOperator) && current().text == op; }
  bool isWord(std::string_view word) const { return is(TokenKind::kName) && current().text == word; }
  bool isAnyWord(Words words) const {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return isWord(word); });
  }
  bool skipOp(std::string_view op) { return isOp(op) ? (take(), true) : false; }
  bool skipWord(std::string_view word) { return isWord(word) ? (take(), true) : false; }

  [[noreturn]] void error(std::string message) const { throw TemplateSyntaxError{std::move(message), current().line}; }

  std::string describe() const {
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
  void expectOp(std::string_view op) {
    if (!skipOp(op)) error(fmt::format("expected token '{}', got '{}'", op, describe()));
  }
  std::string expectName() {
    if (!is(TokenKind::kName)) error(fmt::format("expected a name, got '{}'", describe()));
    return take().text;
  }
  void expectBlockEnd() {
    if (!is(TokenKind::kBlockEnd)) error(fmt::format("expected token 'end of statement block', got '{}'", describe()));
    take();
  }

  ExprPtr make(ExprKind kind, std::string name = {}, std::vector<ExprPtr> operands = {}) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = current().line;
    expr->name = std::move(name);
    for (const ExprPtr& operand : operands) deepen(*expr, operand.get());
    expr->operands = std::move(operands);
    return expr;
  }
  void deepen(Expr& expr, const Expr* below) {
    if (below == nullptr) return;
    expr.depth = std::max(expr.depth, below->depth + 1);
    if (expr.depth > kMaxExprDepth) error("an expression nests too deep");
  }
  template <typename... E>
  static std::vector<ExprPtr> list(E... e) {
    std::vector<ExprPtr> out;
    (out.push_back(std::move(e)), ...);
    return out;
  }
  ExprPtr constant(Value value) {
    ExprPtr expr = make(ExprKind::kConst);
    expr->value = std::move(value);
    return expr;
  }

  Body parseBody(Words ends) {
    const Nested nested(*this);
    Body body;
    while (true) {
      if (is(TokenKind::kEnd)) {
        if (ends.size() != 0) error("unexpected end of template, a block is not closed");
        return body;
      }
      if (is(TokenKind::kData)) {
        auto data = statement(StmtKind::kData);
        data->text = take().text;
        body.push_back(std::move(data));
      } else if (is(TokenKind::kVariableBegin)) {
        auto output = statement(StmtKind::kOutput);
        take();
        output->expressions.push_back(parseTuple(true));
        if (!is(TokenKind::kVariableEnd))
          error(fmt::format("expected token 'end of print statement', got '{}'", describe()));
        take();
        body.push_back(std::move(output));
      } else {
        take();
        if (isAnyWord(ends)) return body;
        body.push_back(parseStatement());
        expectBlockEnd();
      }
    }
  }

  StmtPtr statement(StmtKind kind) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = current().line;
    return stmt;
  }

  // The body after a tag, up to and with the name that ends it; the tag's own end follows.
  Body bodyUntil(std::string_view end) {
    expectBlockEnd();
    Body body = parseBody({end});
    take();
    return body;
  }

  StmtPtr parseStatement() {
    const std::string word = is(TokenKind::kName) ? current().text : "";
    if (word == "if") return parseIf();
    if (word == "for") return parseFor();
    if (word == "set") return parseSet();
    if (word == "macro") return parseMacro();
    if (word == "call") return parseCallBlock();
    if (word == "filter") return parseFilterBlock();
    if (word == "with") return parseWith();
    if (word == "generation") {
      auto scope = statement(StmtKind::kScope);
      take();
      scope->bodies.push_back(functionBody("endgeneration"));
      return scope;
    }
    if (word == "break" || word == "continue") {
      auto stmt = statement(word == "break" ? StmtKind::kBreak : StmtKind::kContinue);
      if (loops_ == 0) error(fmt::format("'{}' outside of a loop", word));
      take();
      return stmt;
    }
    for (const std::string_view known :
         {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
      if (word == known) error(fmt::format("the statement '{}' is not supported in chat templates", word));
    }
    error(fmt::format("encountered unknown tag '{}'", describe()));
  }

  StmtPtr parseIf() {
    auto stmt = statement(StmtKind::kIf);
    do {
      take();
      stmt->expressions.push_back(parseTuple(false));
      expectBlockEnd();
      stmt->bodies.push_back(parseBody({"elif", "else", "endif"}));
    } while (isWord("elif"));
    if (skipWord("else")) {
      stmt->has_else = true;
      stmt->bodies.push_back(bodyUntil("endif"));
    } else {
      take();
    }
    return stmt;
  }

  StmtPtr parseFor() {
    auto stmt = statement(StmtKind::kFor);
    take();
    stmt->targets.push_back(parseTarget(false));
    if (!skipWord("in")) error(fmt::format("expected token 'in', got '{}'", describe()));
    stmt->expressions.push_back(parseTuple(false));
    stmt->expressions.push_back(skipWord("if") ? parseExpression(true) : nullptr);
    stmt->recursive = skipWord("recursive");
    expectBlockEnd();
    ++loops_;
    stmt->bodies.push_back(parseBody({"endfor", "else"}));
    --loops_;
    if (skipWord("else")) {
      stmt->has_else = true;
      stmt->bodies.push_back(bodyUntil("endfor"));
    } else {
      take();
    }
    return stmt;
  }

  Target parseTargetItem(bool with_namespace) {
    const Nested nested(*this);
    Target target;
    if (skipOp("(")) {
      target = parseTarget(false);
      expectOp(")");
      return target;
    }
    target.name = expectName();
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == reserved) error(fmt::format("can't assign to '{}'", target.name));
    }
    if (with_namespace && skipOp(".")) target.attribute = expectName();
    return target;
  }

  Target parseTarget(bool with_namespace) {
    Target first = parseTargetItem(with_namespace);
    if (!isOp(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.items.push_back(std::move(first));
    while (skipOp(",")) {
      if (!is(TokenKind::kName) && !isOp("(")) break;
      if (isWord("in")) break;
      tuple.items.push_back(parseTargetItem(with_namespace));
    }
    return tuple;
  }

  StmtPtr parseSet() {
    auto stmt = statement(StmtKind::kSet);
    take();
    stmt->targets.push_back(parseTarget(true));
    if (skipOp("=")) {
      stmt->expressions.push_back(parseTuple(true));
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->expressions.push_back(parseBlockFilters());
    stmt->bodies.push_back(bodyUntil("endset"));
    return stmt;
  }

  ExprPtr parseBlockFilters() {
    if (!isOp("|")) return nullptr;
    return parseFilters(make(ExprKind::kName, kFilteredBlock));
  }

  StmtPtr parseFilterBlock() {
    auto stmt = statement(StmtKind::kFilterBlock);
    take();
    stmt->expressions.push_back(parseFilters(parseOneFilter(make(ExprKind::kName, kFilteredBlock))));
    stmt->bodies.push_back(bodyUntil("endfilter"));
    return stmt;
  }

  StmtPtr parseWith() {
    auto stmt = statement(StmtKind::kWith);
    take();
    while (!is(TokenKind::kBlockEnd)) {
      if (!stmt->targets.empty()) expectOp(",");
      stmt->targets.push_back(parseTarget(false));
      expectOp("=");
      stmt->expressions.push_back(parseExpression(true));
    }
    stmt->bodies.push_back(bodyUntil("endwith"));
    return stmt;
  }

  void parseSignature(Stmt& stmt) {
    expectOp("(");
    while (!isOp(")")) {
      if (!stmt.parameters.empty()) expectOp(",");
      Parameter parameter;
      parameter.name = expectName();
      if (skipOp("="))
        parameter.fallback = parseExpression(true);
      else if (!stmt.parameters.empty() && stmt.parameters.back().fallback)
        error("non-default argument follows default argument");
      stmt.parameters.push_back(std::move(parameter));
    }
    take();
  }

  // The body of a function, in which the loops around it can't be left. Notes which special names it reads.
  Body functionBody(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = bodyUntil(end);
    loops_ = loops;
    return body;
  }
  void readFunctionBody(Stmt& stmt, std::string_view end) {
    const size_t begin = at_;
    stmt.bodies.push_back(functionBody(end));
    for (size_t i = begin; i < at_; ++i) {
      if (tokens_[i].kind != TokenKind::kName) continue;
      stmt.uses_varargs |= tokens_[i].text == "varargs";
      stmt.uses_kwargs |= tokens_[i].text == "kwargs";
      stmt.uses_caller |= tokens_[i].text == "caller";
    }
  }

  StmtPtr parseMacro() {
    auto stmt = statement(StmtKind::kMacro);
    take();
    stmt->text = expectName();
    parseSignature(*stmt);
    readFunctionBody(*stmt, "endmacro");
    return stmt;
  }

  StmtPtr parseCallBlock() {
    auto stmt = statement(StmtKind::kCallBlock);
    take();
    if (isOp("(")) parseSignature(*stmt);
    stmt->expressions.push_back(parseExpression(true));
    if (stmt->expressions[0]->kind != ExprKind::kCall) error("expected call");
    readFunctionBody(*stmt, "endcall");
    return stmt;
  }

  bool atTupleEnd() const {
    return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || isOp(")") || isWord("recursive");
  }

  ExprPtr parseTuple(bool with_conditional, bool parentheses = false) {
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

  ExprPtr parseExpression(bool with_conditional) {
    const Nested nested(*this);
    return with_conditional ? parseConditional() : parseOr();
  }

  ExprPtr parseConditional() {
    ExprPtr value = parseOr();
    while (skipWord("if")) {
      ExprPtr condition = parseOr();
      ExprPtr alternative = skipWord("else") ? parseExpression(true) : nullptr;
      value = make(ExprKind::kConditional, {}, list(std::move(condition), std::move(value), std::move(alternative)));
    }
    return value;
  }

  ExprPtr parseOr() {
    ExprPtr left = parseAnd();
    while (skipWord("or")) left = make(ExprKind::kOr, {}, list(std::move(left), parseAnd()));
    return left;
  }
  ExprPtr parseAnd() {
    ExprPtr left = parseNot();
    while (skipWord("and")) left = make(ExprKind::kAnd, {}, list(std::move(left), parseNot()));
    return left;
  }
  ExprPtr parseNot() {
    const Nested nested(*this);
    if (skipWord("not")) return make(ExprKind::kNot, {}, list(parseNot()));
    return parseCompare();
  }

  ExprPtr parseCompare() {
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

  ExprPtr parseMath1() {
    ExprPtr left = parseConcat();
    while (isOp("+") || isOp("-")) {
      std::string op = take().text;
      left = make(ExprKind::kBinary, std::move(op), list(std::move(left), parseConcat()));
    }
    return left;
  }
  ExprPtr parseConcat() {
    std::vector<ExprPtr> parts;
    parts.push_back(parseMath2());
    while (skipOp("~")) parts.push_back(parseMath2());
    return parts.size() == 1 ? std::move(parts[0]) : make(ExprKind::kConcat, {}, std::move(parts));
  }
  ExprPtr parseMath2() {
    ExprPtr left = parsePow();
    while (isOp("*") || isOp("/") || isOp("//") || isOp("%")) {
      std::string op = take().text;
      left = make(ExprKind::kBinary, std::move(op), list(std::move(left), parsePow()));
    }
    return left;
  }
  ExprPtr parsePow() {
    ExprPtr left = parseUnary(true);
    while (skipOp("**")) left = make(ExprKind::kBinary, "**", list(std::move(left), parseUnary(true)));
    return left;
  }

  ExprPtr parseUnary(bool with_filter) {
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

  ExprPtr parsePrimary() {
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

  ExprPtr parsePostfix(ExprPtr expr) {
    while (true) {
      if (isOp(".") || isOp("["))
        expr = parseSubscript(std::move(expr));
      else if (isOp("("))
        expr = parseCall(std::move(expr));
      else
        return expr;
    }
  }

  ExprPtr parseFilterExpr(ExprPtr expr) {
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

  ExprPtr parseSubscript(ExprPtr object) {
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

  ExprPtr parseSubscriptKey() {
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

  std::unique_ptr<Arguments> parseArguments(Expr& owner) {
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

  ExprPtr parseCall(ExprPtr callee) {
    ExprPtr call = make(ExprKind::kCall, {}, list(std::move(callee)));
    call->arguments = parseArguments(*call);
    return call;
  }

  std::string dottedName() {
    std::string name = expectName();
    while (skipOp(".")) name += "." + expectName();
    return name;
  }

  ExprPtr parseOneFilter(ExprPtr input) {
    ExprPtr filter = make(ExprKind::kFilter, dottedName(), list(std::move(input)));
    filter->arguments = isOp("(") ? parseArguments(*filter) : std::make_unique<Arguments>();
    return filter;
  }
  ExprPtr parseFilters(ExprPtr input) {
    while (skipOp("|")) input = parseOneFilter(std::move(input));
    return input;
  }

  ExprPtr parseTest(ExprPtr input) {
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
};
}  // namespace

Body parseTemplate(std::string_view source) { return Parser(lex(source)).run(); }

}  // namespace chorus::tmpl
