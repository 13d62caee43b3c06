#include "text/template/parser.h"

#include <fmt/format.h>

#include <utility>

#include "text/template/expression_parser.h"

namespace chorus::tmpl {
namespace {

class StatementParser : ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Body run() { return parseBody({}); }

 private:
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
    const size_t begin = position();
    stmt.bodies.push_back(functionBody(end));
    for (size_t i = begin; i < position(); ++i) {
      if (at(i).kind != TokenKind::kName) continue;
      stmt.uses_varargs |= at(i).text == "varargs";
      stmt.uses_kwargs |= at(i).text == "kwargs";
      stmt.uses_caller |= at(i).text == "caller";
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

  int loops_ = 0;
};

}  // namespace

Body parseTemplate(std::string_view source) { return StatementParser(lex(source)).run(); }

}  // namespace chorus::tmpl
