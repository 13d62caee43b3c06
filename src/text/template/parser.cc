#include "text/template/parser.h"

#include <fmt/format.h>

#include <utility>

#include "text/template/expression_parser.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

class StatementParser : ExpressionParser {
 public:
  StatementParser(std::string_view source, Arena& arena, WorkMeter& meter) : ExpressionParser(source, arena, meter) {}

  Body run() { return parseBody({}); }

 private:
  // The parts of a statement while it is parsed.
  struct Draft {
    Stmt stmt;
    std::vector<const Expr*> expressions;
    std::vector<Body> bodies;
    std::vector<Target> targets;
    std::vector<Parameter> parameters;
  };

  Body parseBody(Words ends) {
    const Nested nested(*this);
    std::vector<Stmt> body;
    while (parseOne(body, ends)) {
    }
    return arena().copy(std::span<const Stmt>(body));
  }

  // Parses one statement; returns false at the end of the body.
  bool parseOne(std::vector<Stmt>& body, Words ends) {
    if (is(TokenKind::kEnd)) {
      if (ends.size() != 0) error("unexpected end of template: a block is not closed");
      return false;
    }
    if (is(TokenKind::kData)) {
      Stmt data = statement(StmtKind::kData);
      data.text = take().text;
      body.push_back(data);
    } else if (is(TokenKind::kVariableBegin)) {
      Stmt output = statement(StmtKind::kOutput);
      take();
      output.output = parseTuple(true);
      if (!is(TokenKind::kVariableEnd))
        error(fmt::format("expected token 'end of print statement', got '{}'", describe()));
      take();
      body.push_back(output);
    } else {
      take();
      if (isAnyWord(ends)) return false;
      body.push_back(parseStatement());
      expectBlockEnd();
    }
    return true;
  }

  Stmt statement(StmtKind kind) const { return {.kind = kind, .line = current().line, .text = {}}; }

  // Starts a statement at the cursor and skips its name.
  Draft begin(StmtKind kind) {
    Draft draft{.stmt = statement(kind), .expressions = {}, .bodies = {}, .targets = {}, .parameters = {}};
    take();
    return draft;
  }

  Stmt finish(const Draft& draft) {
    Stmt stmt = draft.stmt;
    stmt.parts =
        arena().make<StmtParts>(StmtParts{.expressions = arena().copy(std::span<const Expr* const>(draft.expressions)),
                                          .bodies = arena().copy(std::span<const Body>(draft.bodies)),
                                          .targets = arena().copy(std::span<const Target>(draft.targets)),
                                          .parameters = arena().copy(std::span<const Parameter>(draft.parameters))});
    return stmt;
  }

  // Parses the body after a tag, including the name of the end tag; the close of the end tag is left to the caller.
  Body bodyUntil(std::string_view end) {
    expectBlockEnd();
    const Body body = parseBody({end});
    take();
    return body;
  }

  Stmt parseStatement() {
    const std::string_view word = is(TokenKind::kName) ? current().text : "";
    if (word == "if") return parseIf();
    if (word == "for") return parseFor();
    if (word == "set") return parseSet();
    if (word == "macro") return parseMacro();
    if (word == "call") return parseCallBlock();
    if (word == "filter") return parseFilterBlock();
    if (word == "with") return parseWith();
    if (word == "generation") return parseGeneration();
    if (word == "break" || word == "continue") {
      if (loops_ == 0) error(fmt::format("'{}' outside of a loop", word));
      return finish(begin(word == "break" ? StmtKind::kBreak : StmtKind::kContinue));
    }
    for (const std::string_view known :
         {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
      if (word == known) error(fmt::format("the statement '{}' is not supported in chat templates", word));
    }
    error(fmt::format("encountered unknown tag '{}'", describe()));
  }

  Stmt parseGeneration() {
    Draft scope = begin(StmtKind::kScope);
    scope.bodies.push_back(functionBody("endgeneration"));
    return finish(scope);
  }

  Stmt parseIf() {
    Draft draft{.stmt = statement(StmtKind::kIf), .expressions = {}, .bodies = {}, .targets = {}, .parameters = {}};
    do {
      take();
      draft.expressions.push_back(parseTuple(false));
      expectBlockEnd();
      draft.bodies.push_back(parseBody({"elif", "else", "endif"}));
    } while (isWord("elif"));
    if (skipWord("else")) {
      draft.stmt.has_else = true;
      draft.bodies.push_back(bodyUntil("endif"));
    } else {
      take();
    }
    return finish(draft);
  }

  Stmt parseFor() {
    Draft draft = begin(StmtKind::kFor);
    draft.targets.push_back(parseTarget(false));
    if (!skipWord("in")) error(fmt::format("expected token 'in', got '{}'", describe()));
    draft.expressions.push_back(parseTuple(false));
    draft.expressions.push_back(skipWord("if") ? parseExpression(true) : nullptr);
    draft.stmt.recursive = skipWord("recursive");
    expectBlockEnd();
    ++loops_;
    draft.bodies.push_back(parseBody({"endfor", "else"}));
    --loops_;
    if (skipWord("else")) {
      draft.stmt.has_else = true;
      draft.bodies.push_back(bodyUntil("endfor"));
    } else {
      take();
    }
    return finish(draft);
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
    const Target first = parseTargetItem(with_namespace);
    if (!isOp(",")) return first;
    std::vector<Target> items = {first};
    while (skipOp(",")) {
      if (!is(TokenKind::kName) && !isOp("(")) break;
      if (isWord("in")) break;
      items.push_back(parseTargetItem(with_namespace));
    }
    Target tuple;
    tuple.is_tuple = true;
    tuple.items = arena().copy(std::span<const Target>(items));
    return tuple;
  }

  Stmt parseSet() {
    Draft draft = begin(StmtKind::kSet);
    draft.targets.push_back(parseTarget(true));
    if (skipOp("=")) {
      draft.expressions.push_back(parseTuple(true));
      return finish(draft);
    }
    draft.stmt.kind = StmtKind::kSetBlock;
    draft.expressions.push_back(isOp("|") ? parseFilters(make(ExprKind::kName, kFilteredBlock)) : nullptr);
    draft.bodies.push_back(bodyUntil("endset"));
    return finish(draft);
  }

  Stmt parseFilterBlock() {
    Draft draft = begin(StmtKind::kFilterBlock);
    draft.expressions.push_back(parseFilters(parseOneFilter(make(ExprKind::kName, kFilteredBlock))));
    draft.bodies.push_back(bodyUntil("endfilter"));
    return finish(draft);
  }

  Stmt parseWith() {
    Draft draft = begin(StmtKind::kWith);
    while (!is(TokenKind::kBlockEnd)) {
      if (!draft.targets.empty()) expectOp(",");
      draft.targets.push_back(parseTarget(false));
      expectOp("=");
      draft.expressions.push_back(parseExpression(true));
    }
    draft.bodies.push_back(bodyUntil("endwith"));
    return finish(draft);
  }

  void parseSignature(Draft& draft) {
    expectOp("(");
    while (!isOp(")")) {
      if (!draft.parameters.empty()) expectOp(",");
      Parameter parameter;
      parameter.name = expectName();
      if (skipOp("="))
        parameter.fallback = parseExpression(true);
      else if (!draft.parameters.empty() && draft.parameters.back().fallback != nullptr)
        error("non-default argument follows default argument");
      draft.parameters.push_back(parameter);
    }
    take();
  }

  // Parses the body of a function; break and continue can't refer to the loops around the function.
  Body functionBody(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const Body body = bodyUntil(end);
    loops_ = loops;
    return body;
  }
  // Parses the body and records which special names it reads.
  void readFunctionBody(Draft& draft, std::string_view end) {
    const SpecialNames before = specialNames();
    draft.bodies.push_back(functionBody(end));
    draft.stmt.uses_varargs = specialNames().varargs > before.varargs;
    draft.stmt.uses_kwargs = specialNames().kwargs > before.kwargs;
    draft.stmt.uses_caller = specialNames().caller > before.caller;
  }

  Stmt parseMacro() {
    Draft draft = begin(StmtKind::kMacro);
    draft.stmt.text = expectName();
    parseSignature(draft);
    readFunctionBody(draft, "endmacro");
    return finish(draft);
  }

  Stmt parseCallBlock() {
    Draft draft = begin(StmtKind::kCallBlock);
    if (isOp("(")) parseSignature(draft);
    draft.expressions.push_back(parseExpression(true));
    if (draft.expressions[0]->kind != ExprKind::kCall) error("expected call");
    readFunctionBody(draft, "endcall");
    return finish(draft);
  }

  int loops_ = 0;
};

}  // namespace

Body parseTemplate(std::string_view source, Arena& arena, WorkMeter& meter) {
  return StatementParser(source, arena, meter).run();
}

}  // namespace chorus::tmpl
